"""What an emitter gives, and what each framework's files can say: all else is refused before a search."""

from collections.abc import Mapping
from dataclasses import dataclass

from memplan.job.parallel import DataParallel
from memplan.job.sayable import DEGREES, Degree, Sayable

MODULES: Mapping[str, str] = {
    "deepspeed": "deepspeed_json",
    "accelerate": "accelerate_yaml",
    "hf": "training_arguments",
    "fsdp2": "fsdp2_code",
    "torchtitan": "torchtitan_code",
    "axolotl": "axolotl_yaml",
    "torch": "torch_code",
}
"""What ``--to`` takes → the module that writes it."""
FORMATS = tuple(MODULES)
HEAD_ELSEWHERE = "training_args.notes.txt"
"""The file that says what a format without comments leaves out."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Emitted:
    """A setup in the words of one framework."""

    files: Mapping[str, str]
    """Name → content; the file that is handed to the framework comes first."""
    notes: tuple[str, ...] = ()
    """What the files do not say and somebody has to do, and which peak holds without, one sentence each."""
