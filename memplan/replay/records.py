"""What an allocator makes of a stream of requests."""

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from memplan.units import Bytes

ALL_STREAMS: Final = -1
"""``stream`` of a ``synchronize`` that waits for the whole device."""
DEFAULT_POOL: Final = 0
"""The pool outside all private ones; as ``key`` of ``empty_cache``: everything."""

RequestAction = Literal[
    "alloc",
    "free",
    "record_stream",
    "synchronize",
    "pool_begin",
    "pool_end",
    "pool_release",
    "empty_cache",
]
"""What a program can ask of an allocator; ``Request`` says what goes with each."""


class Request(NamedTuple):
    """One line of an allocation stream.

    Fields without a meaning for an action are 0.

    ==================  ==========  ======  ====================================================================
    action              key         stream  meaning
    ==================  ==========  ======  ====================================================================
    ``alloc``           allocation  its     take ``nbytes``
    ``free``            allocation          give them back
    ``record_stream``   allocation  other   that stream uses it too: once freed, it must wait for that stream
    ``synchronize``                 which   all work queued on that stream so far is done; or ``ALL_STREAMS``
    ``pool_begin``      pool                from here on allocations go to that private pool (``MempoolId_t``, not
                                            0): a CUDA graph's capture, or ``torch.cuda.use_mem_pool``
    ``pool_end``        pool                until here; pools nest, the last one begun counts
    ``pool_release``    pool                one user fewer; a pool has as many as times it was begun, and without
                                            any the next flush gives its free segments back
    ``empty_cache``     pool or 0           give everything cached back, or what a released pool has cached
    ==================  ==========  ======  ====================================================================
    """

    action: RequestAction
    """What happens."""
    key: int
    """Identity of the allocation, or of the private pool."""
    nbytes: int
    """Requested bytes of an ``alloc``; ignored otherwise."""
    stream: int
    """CUDA stream."""


class RepeatedTurn(NamedTuple):
    """A stretch of requests that stands for several: the others are the same, by other keys."""

    first: int
    """Index of its first request."""
    end: int
    """Index after its last one."""
    first_key: int
    """Of what it allocates."""
    keys: int
    """How many it allocates; the turn before it allocated as many, each with a key less by this number."""
    further: int
    """How many more of them come after it."""
    continues: bool = False
    """Does it stand where the turn before it ended, which was the same?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory:
    """A request that the device could not serve, after all that the allocator tries."""

    rounded: Bytes
    """Size of the block that the request needed."""
    wanted: Bytes
    """Bytes that the device was asked for."""
    allocated: Bytes
    """Bytes in live blocks at that moment."""
    reserved: Bytes
    """Bytes in segments at that moment, when all that could be released had been."""
    stream: int
    """CUDA stream of the request."""
    event: int = -1
    """Index in the stream of the event that failed; -1 outside a replay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLayout:
    """One block of a segment."""

    address: int
    """Where it starts."""
    size: Bytes
    """Its length."""
    requested: Bytes
    """Bytes asked for; 0 for a free block."""
    state: Literal["allocated", "pending", "free"]
    """``pending``: freed, but another stream may still use it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLayout:
    """One segment, or one contiguous mapped stretch of an expandable one."""

    address: int
    """Where it starts."""
    size: Bytes
    """Its length."""
    stream: int
    """CUDA stream it belongs to."""
    small: bool
    """Does it belong to the small pool?"""
    blocks: tuple[BlockLayout, ...]
    """What it is divided into, in address order."""
    expandable: bool = False
    """Is it a part of an expandable segment?"""
    pool: int = DEFAULT_POOL
    """Private pool that it belongs to, or the default one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLayout:
    """An allocator's whole state, with the totals that it keeps."""

    segments: tuple[SegmentLayout, ...]
    """All segments in address order."""
    requested: Bytes
    """Bytes asked for, of blocks that are not free."""
    allocated: Bytes
    """Bytes in blocks that are not free, pending ones included (``active_bytes``)."""
    reserved: Bytes
    """Bytes in segments."""


_NONE: Final = Bytes(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryProfile:
    """Peaks and state of an allocator after replaying a stream."""

    peak_requested: Bytes
    """Most bytes asked for at once, of blocks that are live or pending."""
    peak_allocated: Bytes
    """Most bytes in live blocks at once: requests rounded, unsplittable rests included."""
    peak_reserved: Bytes
    """Most bytes in segments at once."""
    peak_allocated_at: int
    """Index in the stream of the event at which ``peak_allocated`` is first reached."""
    peak_at: int
    """Index of *the peak*, the one moment that reports describe: of all events at which ``peak_reserved`` is reserved,
    or within 1 % of it, the first at which most is allocated. Where a step repeats, segments are kept and this is the
    peak of the step."""
    allocated_at_peak: Bytes
    """Bytes in live blocks at the peak."""
    requested_at_peak: Bytes
    """Bytes asked for at the peak, of blocks that are live or pending."""
    end_reserved: Bytes
    """Bytes in segments at the end."""
    steps_replayed: int
    """Optimizer steps replayed until the allocator's state repeated."""
    segments: int
    """Number of segments at the end."""
    settled: bool = True
    """Did the allocator's state repeat? False where steps were cut short by ``max_steps`` or by a full device."""
    growth: Bytes = _NONE
    """Bytes by which the reserved peak still grows with every repetition after the last; 0 where it does not."""
    retries: int = 0
    """Times that all cached memory was released to serve one request (``num_alloc_retries``)."""
    out_of_memory: OutOfMemory | None = None
    """The request at which the replay ended early, if one could not be served. Peaks then cover what came before."""
    pending_at_peak: Bytes
    """Bytes in freed blocks that still waited for another stream at the peak."""
    peak_active: Bytes
    """Most bytes in live and pending blocks at once (``active_bytes``): ``peak_allocated`` where no stream shares."""

    @property
    def external_fragmentation(self) -> float:
        """Share of reserved bytes in no live or pending block, at the peak."""
        return 1 - self._active_at_peak / self.peak_reserved if self.peak_reserved else 0.0

    @property
    def internal_fragmentation(self) -> float:
        """Share of bytes in live and pending blocks that nobody asked for, at the peak."""
        active = self._active_at_peak
        return 1 - self.requested_at_peak / active if active else 0.0

    @property
    def _active_at_peak(self) -> int:
        return self.allocated_at_peak + self.pending_at_peak
