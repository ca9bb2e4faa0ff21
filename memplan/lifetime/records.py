"""Who is alive when, and why: the records of the lifetime stage."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from memplan.tracing.records import Phase, Trace
from memplan.units import Bytes, OpIndex, StorageId


class Category(StrEnum):
    """What a storage is for (docs/vocabulary.md); the order is the report's."""

    PARAMETER = "parameter"
    GRADIENT = "gradient"
    OPTIMIZER_STATE = "optimizer_state"
    ACTIVATION = "activation"
    INPUT = "input"
    BUFFER = "buffer"
    TEMPORARY = "temporary"
    WORKSPACE = "workspace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """One device storage with its lifespan: half-open ``[start, end)`` in op indices."""

    storage: StorageId
    """The storage."""
    nbytes: Bytes
    """Requested size."""
    start: OpIndex
    """Op that allocates it."""
    end: OpIndex
    """First op at which it is gone; the number of ops in the trace if it outlives the trace."""
    category: Category
    """What it is for."""
    module: str
    """Owner by module path."""
    source: str
    """Owner by source line."""
    stream: int = 0
    """CUDA stream it was allocated on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The moment of most live requested bytes."""

    nbytes: Bytes
    """Requested bytes alive."""
    event: int
    """Index of the event that reaches it; -1 if nothing is ever allocated."""
    op: OpIndex
    """Op during which it is reached."""
    phase: Phase
    """Its phase."""
    op_name: str
    """Its name."""
    module: str
    """Its module path."""
    source: str
    """Its source line."""
    alive: tuple[StorageId, ...]
    """Storages alive at that moment, in order of birth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetimes:
    """A trace put in order: lifespans, categories and the peak, of device storages only."""

    trace: Trace
    """What it was built from."""
    buffers: Mapping[StorageId, Buffer]
    """Every device storage."""
    peak: Peak
    """Over all traced steps."""
