"""Ops of aten whose kernels memplan replaces: which of them not every supported torch has."""

from memplan.seam.patch import Patch

_WHY = "the op runs as on CUDA"
_SOURCE = "aten/src/ATen/native/native_functions.yaml"


def of_every_release(name: str) -> Patch:
    """An op that every supported torch has, by its name without ``aten::``."""
    return Patch(owner="torch.ops.aten", name=name, kind="kernel", why=_WHY, source=_SOURCE)


OPS: dict[str, Patch] = {
    name: Patch(owner="torch.ops.aten", name=name, kind="kernel", since=since, until=until, why=_WHY, source=_SOURCE)
    for name, since, until in (("_fused_rms_norm", "2.9", None), ("_fused_rms_norm_backward", "2.9", None))
}
"""Name without ``aten::`` → the ops that some supported releases lack."""
