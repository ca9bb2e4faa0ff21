"""The page of ``memplan snapshot -f html``: who held the memory when, the allocator at the end, and what would help."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from memplan.measure.document import TIMELINE
from memplan.report.draw.layout import percent
from memplan.report.html.page import PageFrame, assemble
from memplan.report.places import name_of, source_of
from memplan.report.snapshot.digest import digest
from memplan.report.snapshot.hints import hints
from memplan.report.snapshot.json import DOCUMENT, report_of
from memplan.report.snapshot.text import failure_words, headline, now_words, replay_words, what_if_rows
from memplan.snapshot.analysis import SnapshotAnalysis
from memplan.snapshot.records import DeviceSnapshot
from memplan.snapshot.timeline import PlaceTotal
from memplan.units import format_bytes
from memplan.versions import installed

TABLED: Final = 60
"""Places that a table lists at most."""
_KINDS: Final = {"bold green": "fits", "bold yellow": "tight", "bold red": "oom"}
"""Style of the text's first line → the verdict in whose colour the page says it."""
Cells = tuple[str, ...]


def render(
    name: str, device: DeviceSnapshot, analyses: Sequence[SnapshotAnalysis], shown: SnapshotAnalysis, *, top: int
) -> str:
    """Write what a snapshot says of one device as a page that needs nothing else."""
    found = digest(device, shown)
    # As much of an estimate as the scripts read.
    estimate = {
        "peak": {}, "gpu": {"usable_bytes": 0}, "breakdown": {"context": 0}, "timeline": TIMELINE.plain(found.history)
    }  # fmt: skip
    content = DOCUMENT.plain(report_of(name, analyses, shown, top=top))
    frame = PageFrame(
        kind="snapshot",
        title=f"{name}, device {shown.device}",
        versions={"memplan": installed("memplan")},
        rests_on="every figure is of this file alone",
    )
    drawn = {"estimates": [estimate], "labels": dict(found.labels)}
    view = _view(shown, dict(found.labels), has_map=bool(found.history.segments))
    return assemble(frame, view, content | drawn, template="snapshot.html.j2")


def _view(analysis: SnapshotAnalysis, labels: dict[str, str], *, has_map: bool) -> dict[str, Any]:
    said = headline(analysis)
    counted, difference = replay_words(analysis)
    return {
        "kind": _KINDS.get(str(said.style), ""),
        "said": said.plain,
        "facts": tuple(_facts(analysis)),
        "failures": tuple(map(failure_words, analysis.failures)),
        "hints": tuple(hints(analysis)),
        "events": analysis.events,
        "held": tuple(labels.items()),
        "has_map": has_map,
        "now": now_words(analysis),
        "at_peak": tuple(_owners(analysis.owners)),
        "alive": tuple(_owners(analysis.alive)) if analysis.events else (),
        "what_ifs": tuple(what_if_rows(analysis)),
        "notes": (*filter(None, (f"replay: {', '.join(counted)}" if counted else "", difference)), *analysis.notes),
    }


def _facts(analysis: SnapshotAnalysis) -> Iterator[Cells]:
    peak = analysis.peak
    yield "allocated at the peak", format_bytes(peak.allocated)
    yield "reserved at most", format_bytes(analysis.reserved_peak.reserved)
    yield "never in use at once", percent(analysis.slack)
    if analysis.events:
        yield "events", f"{analysis.events:,}"
        yield "peak after event", f"{peak.event:,}"
    if analysis.seconds:
        yield "time", f"{analysis.seconds:.3g} s"
    yield "options", analysis.policy.conf or "PyTorch's defaults"


def _owners(owners: Sequence[PlaceTotal]) -> Iterator[Cells]:
    total = sum(owner.size for owner in owners) or 1
    for owner in owners[:TABLED]:
        figures = (format_bytes(owner.size), percent(owner.size / total), f"{owner.count:,}")
        yield name_of(owner.place), source_of(owner.place), *figures
    rest = owners[TABLED:]
    if rest:
        size, count = sum(owner.size for owner in rest), sum(owner.count for owner in rest)
        yield f"{len(rest)} further places", "", format_bytes(size), percent(size / total), f"{count:,}"
