"""What a reader of a snapshot can do, each only where the replay shows that it helps."""

from collections.abc import Iterator

from memplan.snapshot.analysis import SnapshotAnalysis
from memplan.snapshot.frames import PlaceKind
from memplan.snapshot.state import OutOfMemoryCause
from memplan.units import format_bytes

WORTH = 0.02
"""Share of the reserved peak that an option must save to be worth a hint: memplan's own line."""


def hints(analysis: SnapshotAnalysis) -> Iterator[str]:
    """Sentences, most useful first."""
    yield from _policy(analysis)
    if any(failure.cause is OutOfMemoryCause.LIMIT for failure in analysis.failures):
        yield "The device had room: look for set_per_process_memory_fraction, or memory that others held for a moment."
    if not analysis.events:
        yield (
            "For peaks, owners and what-ifs, call torch.cuda.memory._record_memory_history() before the work and "
            "_dump_snapshot() after it."
        )
    elif analysis.caching and all(
        owner.place.kind in {PlaceKind.UNKNOWN, PlaceKind.BEFORE} for owner in analysis.owners
    ):
        yield "For owners, record call stacks: torch.cuda.memory._record_memory_history(context='all')."


def _policy(analysis: SnapshotAnalysis) -> Iterator[str]:
    """The option that saves most, beside the recorded ones replayed in the same way."""
    if analysis.baseline is None or not analysis.what_ifs:
        return
    saviours = [found for found in analysis.what_ifs if found.survives and not analysis.baseline.survives]
    best = min(saviours or analysis.what_ifs, key=lambda found: found.profile.peak_reserved)
    saved = analysis.baseline.profile.peak_reserved - best.profile.peak_reserved
    if saviours:
        yield f"PYTORCH_CUDA_ALLOC_CONF={best.conf} would have served what ran out of memory."
    elif saved > WORTH * analysis.baseline.profile.peak_reserved:
        yield f"PYTORCH_CUDA_ALLOC_CONF={best.conf} lowers the reserved peak by {format_bytes(saved)}."
