"""The installed DeepSpeed, imported as on a machine with a GPU."""

import importlib
import importlib.metadata
import logging
import os
import sys
import warnings
from types import ModuleType
from typing import Final

from memplan.errors import UsageError

OLDEST: Final = (0, 18)
"""Earlier versions were not tried: they shape buckets and offloaded gradients in other ways."""
_DEVICE = "DS_ACCELERATOR"
"""What DeepSpeed takes its device from when it is first imported; elsewhere it would look for one and find none."""

_LATE: Final = ("deepspeed.runtime.zero.muon.muon_optimizer", "deepspeed.runtime.zero.muon.original_muon")
"""What DeepSpeed imports when it first runs, and what compiles functions then."""


def deepspeed() -> ModuleType:
    """Import DeepSpeed, outside of every trace.

    Raises:
        UsageError: It is not installed, or too old.
    """
    if "deepspeed" in sys.modules:
        return sys.modules["deepspeed"]
    try:
        version = importlib.metadata.version("deepspeed")
    except importlib.metadata.PackageNotFoundError:
        what = "ZeRO is traced with DeepSpeed's own code, which is not installed"
        raise UsageError(what, hint="pip install deepspeed (no GPU and no compiler needed: DS_BUILD_OPS=0)") from None
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        needed = ".".join(map(str, OLDEST))
        raise UsageError(f"DeepSpeed {version} is too old to be traced", hint=f"pip install 'deepspeed>={needed}'")
    return _import()


def _import() -> ModuleType:
    given = os.environ.get(_DEVICE)
    os.environ[_DEVICE] = "cuda"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = importlib.import_module("deepspeed")
            for name in _LATE:
                importlib.import_module(name)
    finally:
        os.environ.pop(_DEVICE)
        if given is not None:
            os.environ[_DEVICE] = given
    # Its progress goes to standard output, where the answer of a child process may go.
    importlib.import_module("deepspeed.utils.logging").logger.setLevel(logging.CRITICAL)
    return module
