"""Distributed checkpoints (``torch.distributed.checkpoint``): nothing is written, and what is read changes no shape."""

from concurrent.futures import Future
from contextlib import ExitStack
from types import ModuleType
from typing import Any
from unittest import mock

from memplan.tracing.script.hub import Assume

NOT_SAVED = "distributed checkpoints are not written: they would overwrite real files"
NOT_LOADED = "distributed checkpoints are not read: weights and states stay as they were made"


def nowhere(module: ModuleType, stack: ExitStack, assume: Assume) -> None:
    """Let the module save and load nothing until the stack ends."""

    def save(*_: Any, **__: Any) -> None:
        assume(NOT_SAVED)

    def save_later(*_: Any, **__: Any) -> "Future[None]":
        assume(NOT_SAVED)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def load(*_: Any, **__: Any) -> None:
        assume(NOT_LOADED)

    for name, answer in (
        ("save", save), ("save_state_dict", save), ("async_save", save_later), ("load", load), ("load_state_dict", load)
    ):  # fmt: skip
        stack.enter_context(mock.patch.object(module, name, answer))
