"""Reading ahead: one thread loads what comes next while its user works. Torch-free."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from queue import Full, Queue
from threading import Event, Thread
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

_PATIENCE = 0.1
"""Seconds after which a thread that waits looks whether it is still needed."""


def ahead(read: Callable[[K], V], keys: Iterable[K], depth: int) -> Iterator[V]:
    """What ``read`` gives for each key, in order, loaded by a thread.

    The thread ends with the iterator: at its end, at a ``break``, and at an error, which is raised here.

    ``depth`` are loaded and wait, at most.
    """
    loaded: Queue[tuple[bool, V | BaseException | None]] = Queue(depth)
    is_over = Event()

    def put(is_last: bool, value: V | BaseException | None) -> None:
        while not is_over.is_set():
            with suppress(Full):
                loaded.put((is_last, value), timeout=_PATIENCE)
                return

    def work() -> None:
        try:
            for key in keys:
                if is_over.is_set():
                    return
                put(False, read(key))
            put(True, None)
        except BaseException as error:  # noqa: BLE001 - it is raised where the items are used.
            put(True, error)

    thread = Thread(target=work, name="memplan-ahead", daemon=True)
    thread.start()
    try:
        yield from _until_last(loaded)
    finally:
        is_over.set()
        thread.join()


def _until_last(loaded: "Queue[tuple[bool, V | BaseException | None]]") -> Iterator[V]:
    while True:
        is_last, value = loaded.get()
        if isinstance(value, BaseException):
            raise value
        if is_last:
            return
        yield value  # type: ignore[misc]
