"""Several calls at once, each in a process of its own."""

import os
import queue
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from memplan.job.isolate import run_isolated

Item = TypeVar("Item")
Result = TypeVar("Result")

_DAY = 86_400.0
"""Seconds that a call may take: it is memplan's own code, and a long simulation is no error."""


def side_by_side(
    function: Callable[[Item], Result], items: Sequence[Item], *, done: Callable[[int], None] = lambda _: None
) -> tuple[Result, ...]:
    """Call a function for every item, as many at once as there are processors.

    Threads wait for the processes. They are daemons: an interrupt ends this process without waiting for them, and the
    processes end when they find it gone.

    Args:
        function: At module level, or a ``functools.partial`` of one: it travels by name.
        items: Its arguments.
        done: Told after each call how many are done.

    Returns:
        Results in the order of the items.

    Raises:
        MemplanError: The first that any call raises.
    """
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    finished: queue.SimpleQueue[tuple[int, Result | BaseException]] = queue.SimpleQueue()
    for index in range(len(items)):
        waiting.put(index)

    def work() -> None:
        try:
            while True:
                index = waiting.get_nowait()
                finished.put((index, _outcome(function, items[index])))
        except queue.Empty:
            return

    for _ in range(min(len(items), os.cpu_count() or 1)):
        threading.Thread(target=work, daemon=True).start()
    results: dict[int, Result] = {}
    while len(results) < len(items):
        index, outcome = finished.get()
        if isinstance(outcome, BaseException):
            raise outcome
        results[index] = outcome
        done(len(results))
    return tuple(results[index] for index in range(len(items)))


def _outcome(function: Callable[[Item], Result], item: Item) -> Result | BaseException:
    try:
        return run_isolated(function, item, timeout=_DAY)
    except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits.
        return error
