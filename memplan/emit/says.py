"""What each framework's files can say, in one table: all else is refused, before a search and before it is written."""

from collections.abc import Mapping

from memplan.job.parallel import DataParallel
from memplan.job.sayable import DEGREES, Degree, Sayable

_NONE: frozenset[Degree] = frozenset()
_ZERO: Mapping[DataParallel, frozenset[Degree]] = dict.fromkeys(("zero1", "zero2", "zero3"), _NONE)
"""Without ZeRO, DeepSpeed's engine keeps other states than plain PyTorch, which is what was predicted."""
_TRAINERS: Mapping[DataParallel, frozenset[Degree]] = {
    "none": _NONE, "ddp": _NONE, "fsdp1": _NONE, "fsdp2": _NONE, **_ZERO,
}  # fmt: skip
_MESHES: Mapping[DataParallel, frozenset[Degree]] = {**_TRAINERS, "fsdp2": frozenset({"tensor", "context"})}
"""``parallelism_config`` goes with FSDP2 alone (accelerate 1.15, commands/launch.py), and its replicas that share
layers or sequences need shards (parallelism_config.py). axolotl leaves both to accelerate."""
SAYABLE: Mapping[str, Sayable] = {
    "deepspeed": Sayable(framework="DeepSpeed's file", degrees=_ZERO),
    "accelerate": Sayable(framework="accelerate's file", degrees=_MESHES, needs_shards=True),
    "hf": Sayable(framework="a TrainingArguments file", degrees=_TRAINERS),
    "fsdp2": Sayable(framework="fully_shard", degrees={"fsdp2": _NONE}),
    "torchtitan": Sayable(framework="torchtitan", degrees=dict.fromkeys(("none", "ddp", "fsdp2"), frozenset(DEGREES))),
    "axolotl": Sayable(
        framework="axolotl's file",
        degrees=_MESHES,
        needs_shards=True,
        # axolotl 0.19, utils/schemas/validation.py.
        unshardable=frozenset({"adamw-8bit"}),
    ),
    "torch": Sayable(framework="plain PyTorch", degrees={"none": _NONE, "ddp": _NONE}),
}
"""What ``--to`` takes → what it can say."""
