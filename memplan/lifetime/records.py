"""Who is alive when, and why: the records of the lifetime stage."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from memplan.tracing.records import Trace
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetimes:
    """A trace put in order: lifespans and categories, of device storages only."""

    trace: Trace
    """What it was built from."""
    buffers: Mapping[StorageId, Buffer]
    """Every device storage."""
