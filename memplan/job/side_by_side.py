"""Several calls at once, each of which waits for a process of its own (``memplan.job.isolate``)."""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from memplan.job.isolate import end_running

Item = TypeVar("Item")
Result = TypeVar("Result")

_LOOK_AGAIN = 0.1
"""Seconds: how often it is looked whether a call has ended, and whether processes have that should."""


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def side_by_side(
    call: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    at_once: int | None = None,
    told: Callable[[Sequence[Item]], None] = lambda _: None,
) -> tuple[Result, ...]:
    """Call a function for every item, so many at once, else as many as there are processors.

    ``told`` hears which items are not done, at first and whenever they become fewer. Results are in the order of the
    items. The first error of any call, or an interrupt, is raised when every process has been ended.
    """
    if not items:
        return ()
    pool = ThreadPoolExecutor(min(at_once or processors(), len(items)), thread_name_prefix="memplan-side-by-side")
    futures = [pool.submit(call, item) for item in items]
    try:
        for done in range(len(items)):
            told([item for item, future in zip(items, futures, strict=True) if not future.done()])
            _wait_for(futures, done + 1)
        return tuple(future.result() for future in futures)
    except BaseException:
        # Threads cannot be interrupted, but what they wait for can be ended.
        pool.shutdown(wait=False, cancel_futures=True)
        while not all(future.done() for future in futures):
            end_running()
            time.sleep(_LOOK_AGAIN)
        raise
    finally:
        pool.shutdown()


def _wait_for(futures: "Sequence[Future[Any]]", count: int) -> None:
    """Wait until so many are done, in slices: Ctrl-C is only noticed between two. Raises the error of any."""
    while len(done := [future for future in futures if future.done()]) < count:
        wait([future for future in futures if not future.done()], timeout=_LOOK_AGAIN, return_when="FIRST_COMPLETED")
    for future in done:
        future.result()
