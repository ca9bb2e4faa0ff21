"""What a measurement is: a trace on one device, replayed."""

from dataclasses import dataclass, field

from memplan.lifetime.records import Lifetimes
from memplan.measure.jitter import NO_JITTER, Jitter
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.records import MemoryProfile
from memplan.replay.stream import RequestStream
from memplan.units import Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A trace on one device: what is alive when, and what the allocator makes of it."""

    lifetimes: Lifetimes
    """Lifespans, categories, owners; blocks that streams share live until they come back."""
    traced: Lifetimes
    """The same where such blocks come back at once: no device holds less."""
    stream: RequestStream
    """What was replayed."""
    memory: MemoryProfile
    """What came of it."""
    allocated: Bytes
    """Most bytes in live blocks, as ``torch.cuda.max_memory_allocated`` counts them: those that another stream still
    holds back are not among them, as they are in the peak of ``memory``."""
    least: MemoryProfile
    """What comes of it where all that only closed libraries know (``Storage.most_bytes``) is nothing."""
    needed: MemoryProfile
    """What comes of it where it is the most, but nothing where the library can do without (``Storage.spare``)."""
    most: MemoryProfile
    """What comes of it where it is all that it may be."""
    otherwise: "tuple[Measured, ...]" = ()
    """The same job where what nobody knows of its data turns out otherwise."""
    after_epoch: "Measured | None" = None
    """One of these: a program that goes on to what follows its epoch (an evaluation), where it could be followed."""
    notes: tuple[str, ...] = ()
    """Sentences on such ways, for the report."""
    jitter: Jitter = NO_JITTER
    """How far the order of allocations may move the reserved peak."""
    policy: AllocatorPolicy = field(default_factory=AllocatorPolicy)
    """Options of the allocator that was replayed."""
    rank: int = 0
    """Which of the job's ranks it is."""
    replay_seconds: float
    """Wall time of the replay."""

    @property
    def held_back(self) -> int:
        """Bytes of blocks held back by which the peak of ``memory`` is above ``allocated``."""
        return self.memory.peak_allocated - self.allocated
