"""One row of ``benchmarks/sharding.py``."""

from dataclasses import dataclass, field


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
    expandable: bool | None = None
    """Does the run's launcher set ``expandable_segments:True``? None where nobody says."""
    reason: str = ""
    """Why it is left out, decided before any error was looked at; empty where it is complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A row beside what was predicted of it."""

    row: Row
    """The published figure."""
    peaks: Peaks | None = None
    """The prediction; None where it is left out, or failed."""
    others: dict[str, Peaks] = field(default_factory=dict)
    """The same run with another torch, or as its source may be read as well; what is other → prediction."""
    peers: dict[str, int] = field(default_factory=dict)
    """Column of ``peers.COLUMNS`` → what another tool says, in bytes."""
    carried: bool = False
    """Was the prediction made by ``benchmarks/accuracy.py``?"""
    failure: str = ""
    """What went wrong."""

    @property
    def predicted(self) -> int | None:
        """What the figure is held against; with PyTorch's default options where nobody says which were set."""
        if self.peaks is None:
            return None
        if self.row.metric != "reserved":
            return self.peaks.allocated
        return self.peaks.expandable if self.row.expandable else self.peaks.reserved

    def error(self, predicted: int | None) -> float | None:
        """Percent that a prediction lies above the figure; None for none."""
        return 100 * (predicted / self.row.measured - 1) if predicted else None
