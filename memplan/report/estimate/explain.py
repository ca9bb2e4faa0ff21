"""What ``--explain`` adds: the figures behind the peak, every assumption, and where each value came from."""

from collections.abc import Callable, Iterable, Sequence

from rich.text import Text

from memplan.measure.records import Estimate, Saving, Verdict
from memplan.report.draw.layout import flow, hanging, pad, paragraphs, spread
from memplan.report.estimate.envelope import envelope_lines
from memplan.report.estimate.interval import interval_facts
from memplan.report.estimate.job import DEFAULT, FLOP_UNITS, scaled
from memplan.text import shorten
from memplan.tracing.records import Folded
from memplan.units import format_bytes

_FIELD_CELLS = 16
_VALUE_CELLS = 12


def explanation(estimates: Sequence[Estimate], width: int) -> list[list[Text]]:
    """The blocks of the explanation: the first GPU's figures, then all GPUs' words."""
    first = estimates[0]
    figures = [_figures(first, width), envelope_lines(first.envelope, width)]
    return [
        *([] if first.verdict is Verdict.UNKNOWN else figures),
        _savings(first.savings, width),
        *caveats(estimates, width),
        _provenance(first, width),
    ]


def caveats(estimates: Sequence[Estimate], width: int) -> list[list[Text]]:
    """Every assumption and everything that is left out, of all GPUs."""
    return [
        paragraphs("assumptions", _distinct(estimates, lambda estimate: estimate.assumptions), width),
        paragraphs("not modelled", _distinct(estimates, lambda estimate: estimate.not_modelled), width),
    ]


def _distinct(estimates: Sequence[Estimate], phrases: Callable[[Estimate], Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(phrase for estimate in estimates for phrase in phrases(estimate)))


def _figures(estimate: Estimate, width: int) -> list[Text]:
    peak, waste = estimate.peak, estimate.fragmentation
    sizes = {
        "requested": peak.requested_bytes,
        "allocated": peak.allocated_bytes,
        "reserved": peak.reserved_bytes,
        "device": peak.device_bytes,
    }
    work = f"{scaled(estimate.flops_per_step, FLOP_UNITS)}FLOP per step"
    repeats = "the last repeats" if estimate.repeats else "not yet repeating"
    return [
        *flow("memory", (f"{name} {format_bytes(size)}" for name, size in sizes.items()), width),
        *flow(
            "waste",
            (f"{100 * waste.external:.1f} % external", f"{100 * waste.internal:.1f} % internal fragmentation"),
            width,
        ),
        *interval_facts(peak.basis, width),
        *flow("work", (work, f"{estimate.steps_traced} steps traced, {repeats}", *_folded(estimate.folded)), width),
    ]


def _savings(savings: Sequence[Saving], width: int) -> list[Text]:
    """A line for each optimization: what the job takes where it is the other way."""
    rows = [
        spread(Text(f"  {_ON[each.on]}  {shorten(each.optimization, width - len(figures) - 9)}"), Text(figures), width)
        for each in savings
        for figures in (_saved(each, width),)
    ]
    return [Text("what each optimization saves", style="bold"), *rows] if rows else []


_ON = {True: "on ", False: "off"}


def _saved(saving: Saving, width: int) -> str:
    if saving.device_bytes is None or saving.saved_bytes is None:
        return shorten(f"not traced without it: {saving.reason}", width // 2)
    other = f"{'without' if saving.on else 'with'} it {format_bytes(saving.device_bytes)}"
    verb = "saves" if saving.on else "would save"
    if saving.saved_bytes < 0:
        verb = "takes" if saving.on else "would take"
    more = " more" if saving.saved_bytes < 0 else ""
    return f"{other}, {verb} {format_bytes(abs(saving.saved_bytes))}{more}"


def _folded(folded: Folded | None) -> list[str]:
    """Whether the trace is that of all blocks."""
    if folded is None:
        return []
    if folded.refused:
        return [f"all {folded.blocks} blocks traced: {folded.refused}"]
    return [f"{folded.blocks} blocks continued from models of {', '.join(map(str, folded.traced))}"]


def _provenance(estimate: Estimate, width: int) -> list[Text]:
    options = estimate.options
    # Defaults of options that do not apply to this step would only be noise.
    told = {field: source for field, source in estimate.provenance.items() if field in options or source != DEFAULT}
    rows = [
        Text(line)
        for field, source in sorted(told.items())
        for line in hanging(
            f"  {pad(field, _FIELD_CELLS)}  {pad(options.get(field, ''), _VALUE_CELLS)}  ", source, width
        )
    ]
    return [Text("where values come from", style="bold"), *rows] if rows else []
