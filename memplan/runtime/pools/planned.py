"""Sizes that a plan says will be alive at once. Torch-free."""

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from memplan.contract.document import Document
from memplan.errors import UsageError
from memplan.files.documents import read_json
from memplan.files.read import UnreadableError
from memplan.units import Bytes


class PlannedBuffer(NamedTuple):
    """One buffer of a plan."""

    start: int
    """First moment at which it is alive."""
    end: int
    """First moment at which it is gone."""
    size_bytes: Bytes
    """How large it is."""


class PlannedBuffers(NamedTuple):
    """What is read of a plan."""

    buffers: tuple[PlannedBuffer, ...]
    """All that it places."""


_HOW = "memplan reuse-plan TARGET --json > plan.json"
DOCUMENT = Document(name="reuse-plan", root=PlannedBuffers, strict=True, called="the plan", hint=_HOW)
"""What is read of a plan."""


def planned_sizes(path: Path) -> Counter[int]:
    """Size → how many of the buffers at the peak of a plan, a file of ``memplan reuse-plan TARGET --json``.

    Raises:
        UsageError: It cannot be read, or says no sizes (an estimate has totals only).
    """
    try:
        content = read_json(path)
    except UnreadableError as error:
        raise UsageError(f"the plan cannot be read: {error}", where=str(path)) from error
    plan: PlannedBuffers = DOCUMENT.read(content, str(path))
    return at_peak(plan.buffers)


def at_peak(buffers: Collection[tuple[int, int, int]]) -> Counter[int]:
    """Sizes of what is alive at the first moment of most bytes, of buffers (start, end, bytes), half-open."""
    changes = sorted([(end, -size) for _, end, size in buffers] + [(start, size) for start, _, size in buffers])
    alive = most = moment = 0
    for when, change in changes:
        alive += change
        if alive > most:
            most, moment = alive, when
    return Counter(size for start, end, size in buffers if start <= moment < end and size)
