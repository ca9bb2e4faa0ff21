"""The text report: the verdict first, then what the peak is made of, and last what was traced."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from rich.text import Text

from memplan.measure.digest_records import HistoryDigest
from memplan.measure.records import Estimate, KvCache, PeakFacts, TailRisk, Verdict
from memplan.report.draw.layout import apportion, bar, bounded, hanging, packed, pad, percent, source_line, stacked
from memplan.report.estimate.explain import caveats, explanation
from memplan.report.estimate.interval import interval_line
from memplan.report.estimate.job import job_lines
from memplan.report.estimate.owners import owner_lines
from memplan.report.estimate.timeline_chart import chart_lines
from memplan.report.estimate.verdict import NO_COMMANDS, verdict_lines
from memplan.report.labels import LABEL_CELLS, LABELS
from memplan.text import clean
from memplan.units import MIB, format_bytes

_AT = "  at "


def render(
    estimates: Sequence[Estimate],
    *,
    width: int = 80,
    explain: bool = False,
    quiet: bool = False,
    commands: Mapping[str, str] = NO_COMMANDS,
    digests: Sequence[HistoryDigest | None] = (),
) -> list[Text]:
    """Write estimates of one job as lines of styled text.

    Args:
        estimates: The same job on one or several GPUs; the first that has figures is shown in detail.
        width: Terminal cells per line.
        explain: Also list every assumption and where each value came from.
        quiet: Only the verdicts.
        commands: GPU's name → the command that searches for what fits there, for those where no change shown does.
        digests: One for each estimate, to draw memory over the step; none: nothing is drawn.

    Returns:
        Lines without line breaks; those of verdicts first.
    """
    width = bounded(width)
    blocks = [verdict_lines(estimates, width, commands)]
    if not quiet:
        blocks += _detail(estimates, width, explain=explain)
        blocks.append(_plot(estimates, digests, width))
        blocks += explanation(estimates, width) if explain else _short_caveats(estimates, width)
        blocks.append(job_lines(_shown(estimates), width))
    return stacked(blocks, width)


def _shown(estimates: Sequence[Estimate]) -> Estimate:
    """The one that is shown in detail: the first that has figures."""
    return next((estimate for estimate in estimates if estimate.verdict is not Verdict.UNKNOWN), estimates[0])


def _detail(estimates: Sequence[Estimate], width: int, *, explain: bool) -> list[list[Text]]:
    first = _shown(estimates)
    if first.verdict is Verdict.UNKNOWN:
        return []
    title = [Text(f"on {clean(first.gpu.name)}", style="bold")] if len(estimates) > 1 else []
    parts = [*breakdown_lines(first, width), *(_attention_lines(first, width) if explain else [])]
    return [[*title, *parts, *_peak_lines(first, width)], owner_lines(first.owners, width)]


def _plot(estimates: Sequence[Estimate], digests: Sequence[HistoryDigest | None], width: int) -> list[Text]:
    """Memory over the events of the one that is shown in detail."""
    shown = _shown(estimates)
    digest = next((each for estimate, each in zip(estimates, digests, strict=False) if estimate is shown), None)
    if digest is None:
        return []
    curve = digest.curve
    marked = min(bisect_left(curve.events, digest.peak_event), len(curve.events) - 1)
    # A device without an allocator of segments has nothing reserved.
    return chart_lines(curve.allocated, [*map(max, curve.allocated, curve.reserved)], marked, width)


def _attention_lines(estimate: Estimate, width: int) -> list[Text]:
    """Attention's share of the lines above."""
    sizes = [f"{format_bytes(size)} {LABELS.get(part, part)}" for part, size in estimate.attention.items()]
    if not sizes:
        return []
    label = f"  {'attention':{LABEL_CELLS}}  {format_bytes(sum(estimate.attention.values()))} of it: "
    return [Text(line) for line in hanging(label, ", ".join(sizes), width)]


def breakdown_lines(estimate: Estimate, width: int) -> list[Text]:
    """A line with size, share and bar for every category that has any bytes."""
    parts = {category: size for category, size in estimate.breakdown.items() if size}
    sizes = [format_bytes(size) for size in parts.values()]
    size_cells = max((len(size) for size in [*sizes, format_bytes(estimate.peak.device_bytes)]), default=0)
    eighths = apportion(list(parts.values()), 8 * (width - LABEL_CELLS - size_cells - 13))
    total = sum(parts.values())
    return [
        Text.assemble(
            f"  {pad(LABELS.get(category, category.replace('_', ' ')), LABEL_CELLS)}  {size:>{size_cells}}",
            f"  {_percent(parts[category] / total):>5}  ",
            (bar(length), "cyan"),
        )
        for category, size, length in zip(parts, sizes, eighths, strict=True)
    ]


def _peak_lines(estimate: Estimate, width: int) -> list[Text]:
    peak = estimate.peak
    sizes = [format_bytes(size) for size in (*estimate.breakdown.values(), peak.device_bytes)]
    interval = f"[{format_bytes(peak.low_bytes)} to {format_bytes(peak.high_bytes)}]"
    total = f"  {'peak':{LABEL_CELLS}}  {format_bytes(peak.device_bytes):>{max(map(len, sizes))}}"
    lines = [Text.assemble((total, "bold"), f"  {interval}"), *interval_line(peak.basis), *_moment(estimate, width)]
    lines += _after_epoch_lines(peak)
    lines += [Text(f"  {where:{LABEL_CELLS}}  {format_bytes(size)} for each rank") for where, size in _elsewhere(peak)]
    lines += _cache_lines(estimate.kv_cache)
    lines += tail_lines(estimate.tail, width)
    if not estimate.repeats:
        lines.append(Text("  the traced steps do not repeat: a later step may need more", style="yellow"))
    return lines


def _after_epoch_lines(peak: PeakFacts) -> list[Text]:
    """What an evaluation at the end of an epoch takes, where that is more than the steps take."""
    if not peak.after_epoch_bytes:
        return []
    takes = f"{format_bytes(peak.after_epoch_bytes)}: more than the steps take"
    return [Text(f"  {'after an epoch':{LABEL_CELLS}}  {takes}")]


def _elsewhere(peak: PeakFacts) -> list[tuple[str, int]]:
    """Memory beside the device's that a job needs; a few numbers on the host (an optimizer's step) are none."""
    found = (("host", peak.host_bytes), ("data loader", peak.data_pipeline_bytes), ("NVMe", peak.nvme_bytes))
    return [(where, size) for where, size in found if size >= MIB]


def _cache_lines(cache: KvCache | None) -> list[Text]:
    if cache is None:
        return []
    lines = [Text(f"  {'keys and values':{LABEL_CELLS}}  {format_bytes(cache.bytes)} after the last token")]
    if cache.block_size is not None:
        blocks = f"{format_bytes(cache.paged_bytes)} in blocks of {cache.block_size} tokens"
        lines.append(Text(f"  {'':{LABEL_CELLS}}  {blocks}"))
    return lines


def _moment(estimate: Estimate, width: int) -> list[Text]:
    peak = estimate.peak
    phase = "set-up, before the first step" if peak.phase == "setup" else peak.phase
    place = f"{phase}/{peak.module}" if peak.module else phase
    parts = (place, peak.op.removesuffix(".default"), source_line(peak.source))
    first, *further = packed(filter(None, parts), width - len(_AT))
    return [Text(_AT + first), *(Text(" " * len(_AT) + line) for line in further)]


def _short_caveats(estimates: Sequence[Estimate], width: int) -> list[list[Text]]:
    if any(estimate.verdict is Verdict.UNKNOWN for estimate in estimates):
        return caveats(estimates, width)  # What stands in the way of a figure is never cut short.
    phrases = list(dict.fromkeys(phrase for estimate in estimates for phrase in estimate.not_modelled))
    if not phrases:
        return []
    label = "not modelled: "
    more = f" (+{len(phrases) - 1} more: --explain)" if len(phrases) > 1 else ""
    return [[Text(line, style="dim") for line in hanging(label, f"{phrases[0]}{more}", width)]]


def _percent(share: float) -> str:
    return "<1 %" if share < 0.005 else f"{100 * share:.0f} %"


def tail_lines(risk: TailRisk | None, width: int) -> list[Text]:
    """The chance, what it would be at the ends of the peak's interval, and what was drawn."""
    if risk is None:
        return []
    chance = f"{percent(risk.chance)} [{percent(risk.low_chance)} to {percent(risk.high_chance)}]"
    run = f"{chance} run out of memory within {risk.steps:,} steps of {clean(risk.lengths)}"
    lines = hanging(f"  {'drawn lengths':{LABEL_CELLS}}  ", run, width)
    margin = f"  {'':{LABEL_CELLS}}  "
    interval = f"{percent(risk.least_chance)} to {percent(risk.most_chance)} over the peak's interval"
    lines += hanging(margin, f"{interval}; the peak is that of the longest, {risk.longest:,}", width)
    played = f"{risk.runs:,} runs of {risk.played_steps:,} steps" if risk.runs else "no step fits"
    peak = f"the fullest run takes {format_bytes(risk.device_bytes)}"
    return [Text(line) for line in [*lines, *hanging(margin, f"{peak}; {played} drawn, seed {risk.seed}", width)]]
