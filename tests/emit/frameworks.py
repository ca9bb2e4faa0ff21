"""What tests with real frameworks share."""

import argparse
import importlib
import warnings
from pathlib import Path
from types import ModuleType

import pytest

from memplan.emit.formats import emit
from memplan.job.setup_file import Setup


def needed(module: str, version: str = "") -> ModuleType:
    """A framework's module, or the test is skipped: the extra ``frameworks`` installs them."""
    # Frameworks warn of each other's versions while they are imported; that is nothing of memplan's.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(module, minversion=version or None, exc_type=ImportError)


def write(made: Setup, to: str, folder: Path) -> Path:
    emitted = emit(made, to)
    for name, content in emitted.files.items():
        (folder / name).write_text(content, encoding="utf-8")
    return folder / next(iter(emitted.files))


def launched(path: Path) -> argparse.Namespace:
    """Arguments of ``accelerate launch`` after it has read its file, as it does before it starts anything."""
    launch = importlib.import_module("accelerate.commands.launch")
    args = launch.launch_command_parser().parse_args(["--config_file", str(path), "train.py"])
    return launch._validate_launch_command(args)[0]
