"""What an emitter gives: files, and what they leave to the reader."""

from collections.abc import Mapping
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Emitted:
    """A setup in the words of one framework."""

    files: Mapping[str, str]
    """Name → content; the file that is handed to the framework comes first."""
    notes: tuple[str, ...] = ()
    """What the files do not say and somebody has to do, and which peak holds without, one sentence each."""
