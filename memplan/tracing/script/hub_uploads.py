"""What programs write to the hub: repositories, files and cards, of which it is told nothing."""

import importlib
from collections.abc import Callable
from contextlib import ExitStack
from types import ModuleType
from typing import Any
from unittest import mock

from memplan.tracing.script.loggers import Nothing

TOLD_NOTHING = "the hub of huggingface_hub is told nothing"
_WRITES = ("create_repo", "create_branch", "create_tag", "create_commit", "upload_file", "upload_folder",
           "upload_large_folder", "metadata_update", "whoami")  # fmt: skip
"""What programs do on the way to an upload; ``whoami`` names the account (huggingface_hub, hf_api.py)."""


def no_uploads(module: ModuleType, stack: ExitStack, assume: Callable[[str], None]) -> None:
    """Let a program write to the hub as if it did."""

    def told(*_: Any, **__: Any) -> Nothing:
        assume(TOLD_NOTHING)
        return Nothing()

    api = importlib.import_module(f"{module.__name__}.hf_api")
    for owner in (api.HfApi, api, module):
        for name in _WRITES:
            if hasattr(owner, name):
                stack.enter_context(mock.patch.object(owner, name, told))
