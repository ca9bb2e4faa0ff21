"""Processes that a program starts: the first of its ranks runs in the traced process, where it is seen."""

import multiprocessing.context
import multiprocessing.process
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from multiprocessing.pool import ThreadPool
from multiprocessing.queues import Queue, SimpleQueue
from typing import Any
from unittest import mock

import torch

from memplan.seam.replace import Replacement, replaced

_TALKS = (Connection, Queue, SimpleQueue)
"""What a process that waits for another one is given."""


@contextmanager
def played_processes(assume: Callable[[str], None]) -> Iterator[None]:
    """Run what a program would run in other processes in its own: of processes that do the same the first.

    A process that is given a pipe or a queue is still refused: it would wait for ever.

    Args:
        assume: Told what ran, and that others did not.
    """

    def spawn(function: Any, args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True, *_: Any, **__: Any) -> Any:
        assume(f"spawn() of {nprocs} processes: the first runs in the program's own")
        function(0, *args)
        return None if join else _Ended()

    played = _Played(assume)
    with ExitStack() as stack:
        kind = multiprocessing.process.BaseProcess
        stack.enter_context(mock.patch.object(kind, "start", played.starting(kind.start)))
        stack.enter_context(mock.patch.object(multiprocessing.context.BaseContext, "Pool", _pool_of_context))
        for module in (multiprocessing, torch.multiprocessing):
            stack.enter_context(mock.patch.object(module, "Pool", _pool))
        names = ("spawn", "start_processes")
        stack.enter_context(replaced(Replacement(f"torch.multiprocessing.{name}", spawn) for name in names))
        yield


class _Ended:
    """A process that has ended well (``multiprocessing.popen_fork.Popen``), or all of several."""

    returncode = 0
    pid = sentinel = -1

    def join(self, *_: Any, **__: Any) -> bool:
        """All have."""
        return True

    def wait(self, *_: Any, **__: Any) -> int:
        """Its exit code."""
        return 0

    poll = wait

    def terminate(self) -> None:
        """It has ended."""

    kill = close = terminate


class _Played:
    """Runs processes where they are started, one of each kind."""

    def __init__(self, assume: Callable[[str], None]) -> None:
        self._assume = assume
        self._begun: set[Any] = set()

    def starting(self, start: Callable[[Any], None]) -> Callable[[Any], None]:
        """What stands for ``Process.start``."""

        def play(process: Any) -> None:
            given = (*process._args, *process._kwargs.values())
            if any(isinstance(value, _TALKS) for value in given):
                start(process)
                return
            function = process._target or type(process).run
            process._popen = _Ended()
            if function in self._begun:
                return
            self._begun.add(function)
            self._assume("processes that do the same: the first runs in the program's own")
            process.run()

        return play


def _pool(_: Any = None, initializer: Any = None, initargs: Any = (), *__: Any, **___: Any) -> ThreadPool:
    """A pool of one thread: what it works on lies on the host."""
    return ThreadPool(1, initializer, initargs)


def _pool_of_context(_: Any, *args: Any, **kwargs: Any) -> ThreadPool:
    return _pool(*args, **kwargs)
