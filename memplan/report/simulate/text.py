"""The text report of ``memplan simulate``: the recommendation first, then one line per policy."""

from collections.abc import Iterable, Sequence

from rich.text import Text

from memplan.report.draw.layout import bounded, explained, flow, hanging, head_line, pad, paragraphs, stacked
from memplan.simulate.records import PolicyRun, Simulation, Workload
from memplan.text import clean, shorten
from memplan.units import format_bytes

TICKS = "▁▂▃▄▅▆▇█"
"""Heights of the sparkline, from none to the most that any policy shows."""
SPARK_CELLS = 10
"""Length of the sparkline."""
WORTH_A_WORD = 0.02
"""Least share of the reserved peak that cleaning up must save to be mentioned."""
NAME_CELLS = 18
"""Width of the policies' names."""
HEADINGS = f"  {'':{NAME_CELLS}}  {'reserved':>10}  {'frag':>6}  {'drift':>10}  {'cost/step':>9}  over the steps"


def render(simulation: Simulation, *, width: int = 80, explain: bool = False, quiet: bool = False) -> list[Text]:
    """Write a simulation as lines of styled text; ``quiet`` only the recommendation."""
    width = bounded(width)
    blocks = [recommendation_lines(simulation, width)]
    if not quiet:
        blocks += [policy_lines(simulation, width), legend_lines(simulation, width)]
        if explain:
            blocks += explanation_lines(simulation, width)
        blocks.append(head_lines(simulation, width))
    return stacked(blocks, width)


def head_lines(simulation: Simulation, width: int) -> list[Text]:
    """What was played."""
    workload = simulation.workload
    seconds = sum(run.seconds for run in simulation.policies)
    made = "traced" if workload.traced_lengths else "read"
    left = f"memplan {simulation.memplan_version}  {made} in {workload.seconds:.1f} s, simulated in {seconds:.1f} s"
    gpu = [f"on {clean(simulation.gpu.name)}"] if simulation.gpu else []
    items = [f"{len(workload.lengths):,}", *_length_items(workload), *gpu]
    items += [] if workload.traced_lengths else ["each the history of the snapshot"]
    items += [text for field in ("mode", "precision") if (text := workload.options.get(field))]
    items += [f"batch {workload.options['batch_size']}"] if "batch_size" in workload.options else []
    return [head_line(left, workload.target, width), *flow("steps", items, width)]


def _length_items(workload: Workload) -> list[str]:
    shortest, longest = min(workload.lengths), max(workload.lengths)
    if not longest:
        return []
    if shortest == longest:
        return [f"seq {shortest}"]
    mean = sum(workload.lengths) / len(workload.lengths)
    return [f"seq {shortest} to {longest}, mean {mean:.0f}"]


def recommendation_lines(simulation: Simulation, width: int) -> list[Text]:
    """The line to copy, and why."""
    best = simulation.recommendation
    if best is None:
        advice = "memplan estimate says what would make it fit"
        return [Text("every allocator setting runs out of memory", style="bold red"), Text(f"  {advice}")]
    reason = [Text(line) for line in hanging("  ", best.reason, width)]
    # The line is to be copied: it is never shortened here.
    return [Text(clean(best.command), style="bold green"), *reason, *_leftover_lines(simulation, width)]


def _leftover_lines(simulation: Simulation, width: int) -> list[Text]:
    """What would be gained if each step cleaned up behind itself, where that is worth a word."""
    best, freed = simulation.recommendation, simulation.without_leftovers
    chosen = next((run for run in simulation.policies if best and run.name == best.policy), None)
    if not simulation.workload.traced_lengths:
        return []  # A history may begin or end within a step: what outlives it need not be in the way.
    if chosen is None or freed is None or freed.peak_reserved > (1 - WORTH_A_WORD) * chosen.peak_reserved:
        return []
    sentence = (
        f"a step leaves {format_bytes(simulation.passed_bytes)} for the next (output, loss, batch); with del at its "
        f"end: {format_bytes(freed.peak_reserved)} reserved, {100 * freed.fragmentation:.1f} % fragmentation"
    )
    return [Text(line) for line in hanging("  ", sentence, width)]


def policy_lines(simulation: Simulation, width: int) -> list[Text]:
    """One line per policy: what it holds, what of that is wasted, and how that went over the steps."""
    most = _most(simulation)
    lines = [Text(shorten(HEADINGS, width), style="dim")]
    own = [run for run in simulation.policies if run.conf is not None]
    others = [run for run in simulation.policies if run.conf is None]
    lines += [_policy_line(run, simulation, most) for run in own]
    if others:
        lines.append(Text("  what PyTorch has no option for", style="dim"))
        lines += [_policy_line(run, simulation, most) for run in others]
    return lines


def _policy_line(run: PolicyRun, simulation: Simulation, most: float) -> Text:
    best = simulation.recommendation
    chosen = best is not None and run.name == best.policy
    cost = simulation.microseconds[run.name] / max(1, len(run.steps))
    return Text.assemble(
        ("> " if chosen else "  "),
        (pad(run.name, NAME_CELLS), "bold" if chosen else ""),
        f"  {format_bytes(run.peak_reserved):>10}  {100 * run.fragmentation:>4.1f} %",
        f"  {_signed(run.drift):>10}  {_duration(cost):>9}  ",
        (f"OOM at step {run.failed_step:,}", "bold red")
        if run.failed_step is not None
        else (spark(fragmentations(run, SPARK_CELLS), most), "cyan"),
    )


def fragmentations(run: PolicyRun, count: int) -> list[float]:
    """Fragmentation of the run so far, at so many moments evenly spread over its steps."""
    moments = sorted({1 + index * (len(run.steps) - 1) // max(1, count - 1) for index in range(count)})
    return [run.fragmentation_until(moment) for moment in moments]


def _most(simulation: Simulation) -> float:
    """What the highest tick stands for."""
    return max(max(fragmentations(run, SPARK_CELLS)) for run in simulation.policies)


def spark(shares: Sequence[float], most: float) -> str:
    """Shares as ticks; the highest tick stands for ``most``."""
    scale = (len(TICKS) - 1) / most if most > 0 else 0
    return "".join(TICKS[round(max(0.0, share) * scale)] for share in shares)


def legend_lines(simulation: Simulation, width: int) -> list[Text]:
    """What the columns mean, and what else is good to know at once."""
    sentence = (
        "frag: share of reserved memory that nobody asked for, at the peak; drift: reserved after the last step less "
        "after the first; cost: modelled, orders of magnitude; ticks: frag so far, up to "
        f"{100 * _most(simulation):.0f} %"
    )
    return [Text(line, style="dim") for line in hanging("  ", sentence, width)]


def explanation_lines(simulation: Simulation, width: int) -> list[list[Text]]:
    """Everything that the figures rest on."""
    workload = simulation.workload
    notes = [f"{run.name}: {note}" for run in simulation.policies for note in _notes(run)]
    return [
        paragraphs("policies", notes, width),
        *explained(workload.assumptions, workload.not_modelled, width),
    ]


def _notes(run: PolicyRun) -> Iterable[str]:
    last, calls = run.steps[-1], run.calls
    yield (
        f"external {100 * run.external_fragmentation:.1f} %, internal {100 * run.internal_fragmentation:.1f} %; "
        f"largest free block {format_bytes(last.largest_free)}; {calls.allocations:,} cudaMalloc, "
        f"{calls.frees:,} cudaFree, {calls.maps:,} map, {calls.unmaps:,} unmap, {calls.retries:,} retries"
    )
    if calls.moved_bytes:
        yield f"{format_bytes(calls.moved_bytes)} moved by compaction"
    if run.floor is not None:
        yield f"its arena cannot be smaller than {format_bytes(run.floor)}"
    if run.settled_at is not None:
        yield f"its state repeats after {run.settled_at} steps"
    yield from run.notes


def _signed(size: int) -> str:
    return "0" if not size else f"{'+' if size > 0 else ''}{_short(size)}"


def _short(size: int) -> str:
    return format_bytes(size).replace(".00 ", " ")


def _duration(cost: float) -> str:
    """Microseconds in a unit that suits them."""
    for unit, factor in (("s", 1e6), ("ms", 1e3)):
        if cost >= factor:
            return f"{cost / factor:.1f} {unit}"
    return f"{cost:.0f} µs"
