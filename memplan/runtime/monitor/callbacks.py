"""The monitor in other people's loops: a check after each optimizer step, and a stop before memory runs out.

Neither library is needed unless its callback is made; each is made of the library that is there.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from memplan.errors import UsageError
from memplan.runtime.monitor.monitor import MemoryMonitor
from memplan.runtime.monitor.records import Check, Level


def transformers_callback(
    monitor: MemoryMonitor, *, stop_at: Level | None = None, told: Callable[[Check], None] | None = None
) -> Any:
    """A ``TrainerCallback`` for ``transformers.Trainer(callbacks=[...])``.

    Args:
        monitor: What checks, after each optimizer step; closed when training ends.
        stop_at: Have the trainer save and stop as soon as a check is so bad; None: never.
        told: Called with each check.

    Raises:
        UsageError: transformers is not installed.
    """

    class MemoryMonitorCallback(transformers_library().TrainerCallback):  # type: ignore[misc]
        """Checks memory after each optimizer step."""

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
            """After an optimizer step, with all its micro-batches."""
            del args
            if _stops(monitor, int(state.global_step), stop_at, told):
                control.should_save = control.should_training_stop = True
            return control

        def on_train_end(self, *_: Any, **__: Any) -> None:
            """Training is over."""
            monitor.close()

    return MemoryMonitorCallback()


def lightning_callback(
    monitor: MemoryMonitor, *, stop_at: Level | None = None, told: Callable[[Check], None] | None = None
) -> Any:
    """A ``Callback`` for ``lightning.Trainer(callbacks=[...])``, or for that of ``pytorch_lightning``.

    Args:
        monitor: What checks, after each training batch; closed when fitting ends.
        stop_at: Have the trainer stop as soon as a check is so bad; None: never.
        told: Called with each check.

    Raises:
        UsageError: Neither library is installed.
    """

    class MemoryMonitorCallback(lightning_library().Callback):  # type: ignore[misc]
        """Checks memory after each training batch."""

        def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
            """After a batch; steps count optimizer steps."""
            if _stops(monitor, int(trainer.global_step), stop_at, told):
                trainer.should_stop = True

        def teardown(self, trainer: Any, *_: Any, **__: Any) -> None:
            """Fitting, or whatever it was, is over."""
            del trainer
            monitor.close()

    return MemoryMonitorCallback()


def _stops(monitor: MemoryMonitor, step: int, stop_at: Level | None, told: Callable[[Check], None] | None) -> bool:
    check = monitor.check(step)
    if told is not None:
        told(check)
    return stop_at is not None and check.level >= stop_at


def lightning_library() -> ModuleType:
    """Return the library of the two that the process uses already; else the one that is installed.

    Raises:
        UsageError: Neither is.
    """
    names = ("lightning.pytorch", "pytorch_lightning")
    loaded = [name for name in names if name in sys.modules]
    for name in (*loaded, *names):
        try:
            return import_module(name)
        except ImportError:
            continue
    raise UsageError("lightning is not installed", hint="pip install lightning")


def transformers_library() -> ModuleType:
    """Return transformers.

    Raises:
        UsageError: It is not installed.
    """
    try:
        return import_module("transformers")
    except ImportError as error:
        raise UsageError("transformers is not installed", hint="pip install transformers") from error
