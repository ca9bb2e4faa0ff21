"""The history of a replay, small enough for a page: a curve, the largest buffers, and a map of the allocator.

Time is the index of an event, one allocation or free, counted as ``MemoryProfile.peak_allocated_at`` counts them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from memplan.tracing.records import Phase


class Span(NamedTuple):
    """A stretch of the history in one phase of one step; half-open."""

    phase: Phase
    """What the step does."""
    step: int
    """Which one, from 1; 0 is set-up, before the first."""
    start: int
    """First event."""
    end: int
    """First event after it."""


class Holder(NamedTuple):
    """Who a buffer belongs to."""

    module: str
    """Path of the module; empty for what belongs to none."""
    source: str
    """``model.py:41``; empty where unknown."""
    name: str
    """Parameter, buffer or input by its name within the module, else the op that made it."""
    category: str
    """``memplan.lifetime.records.Category``."""


class DigestBuffer(NamedTuple):
    """One allocation from birth to death; half-open."""

    holder: int
    """Index in ``HistoryDigest.holders``."""
    nbytes: int
    """Of its block."""
    start: int
    """Event that allocates it."""
    end: int
    """Event that frees it; the number of events where none does."""


class DigestBlock(NamedTuple):
    """One block of a segment."""

    holder: int
    """Index in ``HistoryDigest.holders``; -1: it is free."""
    nbytes: int
    """Its length."""
    requested: int
    """Bytes asked for; 0 for a free block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestSegment:
    """One segment of the allocator, or one mapped stretch of an expandable one."""

    stream: int
    """CUDA stream that it belongs to."""
    small: bool
    """Is it of the small pool, of requests up to 1 MiB?"""
    expandable: bool
    """Is it a part of an expandable segment?"""
    blocks: tuple[DigestBlock, ...]
    """What it is divided into, in address order."""

    @property
    def nbytes(self) -> int:
        """Its length."""
        return sum(block.nbytes for block in self.blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The history in at most ``memplan.measure.history.MOST_SAMPLES`` samples, and the peak.

    Each stands for a stretch of events: it is the moment of that stretch at which most was allocated, so that no
    maximum is lost. The peak is one more where its stretch has such a moment before it.
    """

    events: tuple[int, ...]
    """The moments, rising."""
    allocated: tuple[int, ...]
    """Bytes in live blocks at each."""
    reserved: tuple[int, ...]
    """Most bytes in segments during the stretch of each."""
    categories: Mapping[str, tuple[int, ...]]
    """``allocated`` by category; only those that ever hold anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryDigest:
    """One replay, from an empty device to the step in which its peaks are reached."""

    events: int
    """How many events it has."""
    peak_event: int
    """The peak that the estimate describes: of all events at which most is reserved, the first at which most is
    allocated. -1 where nothing is."""
    reserved_peak_event: int
    """At which so much is reserved for the first time: the peak or before it."""
    spans: tuple[Span, ...]
    """Phases and steps, one after the other, without a gap."""
    curve: Curve
    """Bytes over events."""
    holders: tuple[Holder, ...]
    """Owners of the buffers and blocks below."""
    buffers: tuple[DigestBuffer, ...]
    """The largest buffers, in order of birth."""
    buffers_left_out: int
    """How many smaller ones there are."""
    segments: tuple[DigestSegment, ...]
    """The allocator at ``peak_event``, in address order; empty where there is none (a CPU)."""
