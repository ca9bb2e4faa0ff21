"""Children of ``memplan.job.isolate`` that begin with torch imported: forked from one server for each test process.

A child that starts from nothing pays 3 to 6 seconds of processor time for imports before it runs a line of a test's
code. One from the server is a process of its own all the same: its own group, its own pipes, killed in the same way.
What a start from nothing promises (which modules are there, whose standard input it is) is tested on real ones: tests
that ask for the fixture ``fresh_children`` get them.
"""

import gc
import multiprocessing
import os
import pickle
import sys
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import IO
from unittest import mock

from memplan.job import child

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    [
        "memplan.measure.local",
        "memplan.tracing.run",
        "memplan.job.load",
        "memplan.simulate.compose",
        "memplan.plan.checkpoint.blocks.call",
        "torch._inductor.utils",
    ]
)
_ENVIRONMENT = dict(os.environ)
"""Of the server: as it is before any test changes it."""


class ForkedChild:
    """What ``run_isolated`` needs of a ``subprocess.Popen``."""

    def __init__(self) -> None:
        requests, ours = multiprocessing.Pipe(duplex=False)
        answers, theirs = multiprocessing.Pipe(duplex=False)
        begun, begins = multiprocessing.Pipe(duplex=False)
        errors = Connection(os.dup(2), readable=False)
        self._process = _SERVER.Process(target=_serve, args=(requests, theirs, errors, begins, dict(os.environ)))
        with mock.patch.dict(os.environ, _ENVIRONMENT, clear=True):
            self._process.start()
        for given in (requests, theirs, errors, begins):
            given.close()
        begun.poll(None)  # Until it leads a process group of its own: only then can it be killed with all it starts.
        begun.close()
        self.stdin, self.stdout = _as_file(ours, "wb"), _as_file(answers, "rb")

    @property
    def pid(self) -> int:
        """The process and its group."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs."""
        return self._process.exitcode

    def wait(self) -> int:
        """Wait for its end."""
        self._process.join()
        assert self._process.exitcode is not None
        return self._process.exitcode

    def kill(self) -> None:
        """End it, where there are no process groups."""
        self._process.kill()


def _as_file(connection: Connection, mode: str) -> IO[bytes]:
    file = os.fdopen(os.dup(connection.fileno()), mode)
    connection.close()
    return file


def _serve(
    requests: Connection, answers: Connection, errors: Connection, begins: Connection, environment: Mapping[str, str]
) -> None:
    """The child: become what ``isolate`` starts, then do as it does."""
    gc.freeze()  # What the server imported stays shared with it.
    os.setsid()
    for standard, given in enumerate((requests, answers, errors)):
        os.dup2(given.fileno(), standard)
        given.close()
    begins.close()
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["-c"]
    waiting = os.fdopen(0, "rb", closefd=False)
    sys.path[:] = pickle.load(waiting)
    child.main(waiting)
