"""One row of ``benchmarks/sharding.py``."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """Predicted peaks of one rank, in bytes."""

    allocated: int
    """Bytes in live blocks, which is *active* where no ``record_stream`` holds a block back."""
    reserved: int
    """Bytes in segments with PyTorch's default options."""
    expandable: int = 0
    """Bytes in segments under ``expandable_segments:True``; 0 where nobody looked."""
    torch: str = ""
    """Release that traced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A published figure: predicted, or left out with the reason."""

    id: str
    """Its id in ``measured.csv``."""
    source: str
    """Who published it."""
    ranks: str
    """GPUs, as the table says."""
    kind: str
    """What shares the job: ``FSDP2 eager``, ``Megatron``, ``one GPU``; empty where it is left out."""
    metric: str
    """Counter of the figure: ``allocated``, ``active``, ``reserved`` or ``unknown``."""
    measured: int
    """The figure in bytes."""
    reason: str = ""
    """Why it is left out, decided before any error was looked at; empty where it is complete."""
