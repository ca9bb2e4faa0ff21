"""Which release of torch a trace is of: from one to the next, kernels take other scratch and are chosen otherwise."""

import os
import re

import torch

from memplan.versions import at_least

VARIABLE = "MEMPLAN_TORCH_RELEASE"
"""Environment variable that names another release than the one at hand. Operators and their gradients stay those at
hand; what CUDA does below them is then that release's. It holds results of one release against another's torch."""


def torch_release() -> str:
    """``2.13.0+cpu``: of the torch at hand, unless the environment names another."""
    return os.environ.get(VARIABLE) or str(torch.__version__)


def since(least: str) -> bool:
    """Is the release that the trace is of as new as another (``2.12``)?"""
    return at_least(torch_release(), least)


def cuda_major() -> int:
    """The CUDA that this release was built with, whose CUB its kernels use.

    A release whose name does not say (``2.13.0+cpu``) counts as the build that PyPI has of it: CUDA 13 since 2.11.
    """
    named = re.search(r"\+cu(\d+)\d$", torch_release())
    return int(named[1]) if named else 13 if since("2.11") else 12
