"""The garbage collector while jobs are traced and replayed: off, since all that it would walk is alive."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_off() -> Iterator[None]:
    """Keep the collector off, and collect once at the end what was made inside.

    What was there before (torch, the model's code) is not walked: that takes as long as a third of a small trace. A
    process that has turned the collector off for good ends with its answer, and nothing is collected.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()
        gc.enable()


def between_traces() -> None:
    """Collect the garbage of the trace before; what then lives stays to the end, and is not walked again."""
    gc.collect()
    gc.freeze()


def never_collect() -> None:
    """Turn the collector off for good, in a process that ends with its answer."""
    gc.disable()
