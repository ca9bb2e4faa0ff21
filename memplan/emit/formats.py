"""The frameworks that a setup can be written for."""

from collections.abc import Mapping
from importlib import import_module

from memplan.emit.quote import check, one_line
from memplan.emit.records import Emitted
from memplan.errors import UsageError
from memplan.job.setup_file import Setup

_MODULES: Mapping[str, str] = {
    "deepspeed": "deepspeed_json",
    "accelerate": "accelerate_yaml",
    "hf": "training_arguments",
    "fsdp2": "fsdp2_code",
    "torchtitan": "torchtitan_code",
    "axolotl": "axolotl_yaml",
    "torch": "torch_code",
}
FORMATS = tuple(_MODULES)
"""What ``--to`` takes."""


def emit(setup: Setup, to: str) -> Emitted:
    """Write a setup for a framework.

    Args:
        setup: The setup; a checkpoint plan that it names is read where the format holds it.
        to: One of ``FORMATS``.

    Raises:
        UsageError: The framework cannot do what the setup says, or a file would not be of its language.
    """
    if setup.job.mode != "train":
        raise UsageError(f"the setup is for {setup.job.mode}; only training has a configuration to write")
    written: Emitted = import_module(f"memplan.emit.{_MODULES[to]}").render(setup)
    check(written.files)
    return Emitted(files=written.files, notes=tuple(map(one_line, written.notes)))
