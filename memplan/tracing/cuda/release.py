"""Which release of torch a trace is of: from one to the next, kernels take other scratch and are chosen otherwise."""

import os
import re

import torch

from memplan.versions import at_least

_CUDA = (("2.11", "13.0"), ("2.8", "12.8"), ("2.7", "12.6"), ("2.5", "12.4"), ("2.1", "12.1"), ("2", "11.7"))
"""From which release on PyPI's build has which CUDA (the nvidia packages that its metadata asks for)."""
_ROCM = (("2.11", "7.2"), ("2.10", "7.1"), ("2.8", "6.4"), ("2.7", "6.3"), ("2.5", "6.2"), ("2.4", "6.1"), ("2", "6.0"))
"""The newest ROCm of a release: pytorch.org/get-started/previous-versions up to 2.9, later ones from memory."""
VARIABLE = "MEMPLAN_TORCH_RELEASE"
"""Environment variable that names another release than the one at hand. Operators and their gradients stay those at
hand; what CUDA does below them is then that release's. It holds results of one release against another's torch."""


def torch_release() -> str:
    """``2.13.0+cpu``: of the torch at hand, unless the environment names another."""
    return os.environ.get(VARIABLE) or str(torch.__version__)


def since(least: str) -> bool:
    """Is the release that the trace is of as new as another (``2.12``)?"""
    return at_least(torch_release(), least)


def cuda_version() -> str:
    """``12.8``: the CUDA that this release was built with. One whose name does not say counts as PyPI's build of it."""
    named = re.search(r"\+cu(\d+)(\d)$", torch_release())
    return f"{named[1]}.{named[2]}" if named else _built_with(_CUDA)


def rocm_version() -> str:
    """``6.4``: the same of its build for AMD's cards."""
    named = re.search(r"\+rocm(\d+\.\d+)", torch_release())
    return named[1] if named else _built_with(_ROCM)


def _built_with(table: tuple[tuple[str, str], ...]) -> str:
    return next((version for least, version in table if since(least)), table[-1][1])


def cuda_major() -> int:
    """The major number of the CUDA whose CUB its kernels use."""
    return int(cuda_version().partition(".")[0])
