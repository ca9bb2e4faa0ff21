"""Build calls as the recorder would, on meta tensors."""

from typing import Any

import torch

from memplan.tracing.records import DeviceTraits
from memplan.tracing.scratch.cuda_table import CUDA_RULES
from memplan.tracing.scratch.rules import Call, Script
from memplan.units import Bytes

A100 = DeviceTraits(kind="cuda", capability=(8, 0), sm_count=108, threads_per_sm=2048)
H100 = DeviceTraits(
    kind="cuda", capability=(9, 0), sm_count=132, threads_per_sm=2048, cublas_workspace_bytes=Bytes(33_554_432)
)


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def strided(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty_strided(shape, strides, dtype=dtype, device="meta")


def script(
    name: str,
    *args: Any,
    out: Any = None,
    device: DeviceTraits = A100,
    in_backward: bool = False,
    host: tuple[torch.Tensor, ...] = (),
    **kwargs: Any,
) -> Script | None:
    return CUDA_RULES[name](
        Call(
            name=name,
            args=args,
            kwargs=kwargs,
            out=out,
            device=device,
            in_backward=in_backward,
            is_host=lambda tensor: any(tensor is each for each in host),
        )
    )


def played(found: Script | None) -> list[tuple[str, int]]:
    """Every event of a script in order, with what is left freed in reverse; fails on a free of nothing."""
    if found is None:
        return []
    held: dict[str, int] = {}
    order: list[tuple[str, int]] = []
    for action, key, size, *_ in found.lines:
        if action == "alloc":
            assert key not in held
            held[key] = size
            order.append(("alloc", size))
        elif action == "free":
            order.append(("free", held.pop(key)))
        else:
            order.append(("keep", size))
    return order + [("free", size) for size in reversed(held.values())]


def allocated(found: Script | None) -> list[int]:
    return [size for action, size in played(found) if action == "alloc"]
