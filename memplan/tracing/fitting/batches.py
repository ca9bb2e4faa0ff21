"""A target's batches as the loops of libraries take them."""

from collections.abc import Callable, Iterator
from typing import Any

from memplan.job.source import ModelSource
from memplan.job.spec import JobSpec
from memplan.job.usercode import user_code

ENDLESS = 1_000_000
"""Batches of an epoch, more than are ever asked for: loops fetch ahead from what has no length."""


class Batches:
    """Makes batches one after another, on the host."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __len__(self) -> int:
        return ENDLESS

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield self._make()


def batches_of(source: ModelSource, spec: JobSpec) -> Batches:
    """Batches as a target's ``batch`` makes them."""
    make = source.batch
    assert make is not None  # noqa: S101 - the caller asked.

    def batch() -> Any:
        with user_code("batch()"):
            return make(spec.batch_size, spec.seq_len or source.default_seq_len)

    return Batches(batch)
