"""An estimate and its timeline as plain data and back: the contract of ``memplan estimate``.

An UNKNOWN verdict carries no figures: ``peak``, ``breakdown``, ``headroom_bytes`` and ``fragmentation`` are null. It is
read back with zeros in their place. A timeline has columns, which keep it small.
"""

from collections.abc import Mapping
from typing import Any

from memplan.contract.document import Document, head, of_command
from memplan.contract.table import Computed, Table, columns, if_any, or_null
from memplan.lifetime.records import Category
from memplan.measure.digest_records import Curve, DigestBlock, DigestBuffer, DigestSegment, HistoryDigest
from memplan.measure.records import Estimate, Fragmentation, IntervalBasis, PeakFacts, Verdict

BREAKDOWN_ORDER = (*map(str, Category), "fragmentation", "context")
"""The order of reports; a file's keys are sorted."""
_SIZES = ("requested", "allocated", "reserved", "device", "low", "high")
_NO_FIGURES = {
    "peak": {f"{size}_bytes": 0 for size in _SIZES} | {"phase": "setup", "op": "", "module": "", "source": ""},
    "breakdown": dict.fromkeys(BREAKDOWN_ORDER, 0),
    "fragmentation": {"external": 0.0, "internal": 0.0},
}


def _peak(estimate: Estimate) -> PeakFacts | None:
    return None if estimate.verdict is Verdict.UNKNOWN else estimate.peak


def _breakdown(estimate: Estimate) -> Mapping[str, int] | None:
    return None if estimate.verdict is Verdict.UNKNOWN else estimate.breakdown


def _fragmentation(estimate: Estimate) -> Fragmentation | None:
    return None if estimate.verdict is Verdict.UNKNOWN else estimate.fragmentation


def _readable(content: Any) -> Mapping[str, Any]:
    """Return an estimate's plain data with all figures, in the order of reports."""
    plain = dict(of_command(content, "estimate"))
    if plain.get("verdict") == "unknown":
        plain |= _NO_FIGURES
    if isinstance(parts := plain.get("breakdown"), dict):
        plain["breakdown"] = {name: parts[name] for name in BREAKDOWN_ORDER if name in parts} | parts
    return plain


def _headroom(estimate: Estimate) -> int | None:
    """Usable minus predicted device peak; null for a device without a fixed limit (the cpu profile)."""
    limited = estimate.gpu.usable_bytes and estimate.verdict is not Verdict.UNKNOWN
    return estimate.headroom_bytes if limited else None


ESTIMATE = Document(
    name="estimate",
    root=Estimate,
    tables={
        Estimate: Table(
            keys={
                **head("estimate"),
                "verdict": "verdict",
                "code": "verdict.code",
                "model": {"parameters": "parameters", "trainable_parameters": "trainable_parameters"},
                "peak": Computed(_peak, "peak"),
                "breakdown": Computed(_breakdown, "breakdown"),
                "fragmentation": Computed(_fragmentation, "fragmentation"),
                "headroom_bytes": _headroom,
                "trace": {"steps": "steps_traced", "repeats": "repeats", "folded": if_any("folded")},
                "attention": if_any("attention"),
                "envelope": if_any("envelope"),
                "price": if_any("price"),
                "savings": if_any("savings"),
                "tail": if_any("tail"),
                "versions": {"memplan": "memplan_version", "torch": "torch_version"},
            },
            before=_readable,
        ),
        PeakFacts: Table(
            keys={
                "interval": "basis",
                # Files of older versions have none.
                "allocated_interval": if_any("allocated_interval"),
                "reserved_interval": if_any("reserved_interval"),
                "after_epoch_bytes": if_any("after_epoch_bytes"),
            }
        ),
        IntervalBasis: Table(keys={"class": "workload", "class_runs": "own_runs", "figure": or_null("figure")}),
    },
)
TIMELINE = Document(
    name="timeline",
    root=HistoryDigest,
    tables={
        HistoryDigest: Table(keys={"phases": "spans", "owners": columns("holders"), "buffers": columns("buffers")}),
        Curve: Table(keys={"event": "events", "allocated_bytes": "allocated", "reserved_bytes": "reserved"}),
        DigestBuffer: Table(keys={"owner": "holder", "bytes": "nbytes"}),
        DigestBlock: Table(keys={"owner": "holder", "bytes": "nbytes", "requested_bytes": "requested"}),
        DigestSegment: Table(keys={"blocks": columns("blocks")}),
    },
)
