"""The text report of ``memplan graph``: how large the graphs are, where the peak is, and who stays longest."""

from rich.text import Text

from memplan.lifetime.graph import TensorLifetime, count_meetings
from memplan.measure.graphs import JobGraphs
from memplan.report.draw.layout import bounded, flow, head_line, pad, paragraphs, stacked
from memplan.report.labels import LABELS
from memplan.text import clean, shorten
from memplan.units import format_bytes

ROWS = 12
"""Tensors that are listed: the largest by bytes times ops."""


def render(graph: JobGraphs, *, width: int = 80, explain: bool = False, quiet: bool = False) -> list[Text]:
    """Write the graphs in numbers."""
    width = bounded(width)
    blocks = [[head_line(f"memplan {graph.memplan_version}", graph.target, width), *_counts(graph, width)]]
    if not quiet:
        blocks.append(_rows(graph, width))
    if explain:
        blocks.append(_operations(graph, width))
        blocks.append(paragraphs("assumptions", graph.assumptions, width))
    return stacked(blocks, width)


def _counts(graph: JobGraphs, width: int) -> list[Text]:
    phases = [f"{count:,} {phase}" for phase, count in graph.ops_by_phase.items()]
    left_out = [f"{graph.left_out:,} smaller left out"] if graph.left_out else []
    met = f"{count_meetings(graph.tensors):,} pairs meet"
    peak = f"{format_bytes(graph.peak_bytes)} alive during {graph.peak_op or 'set-up'}"
    return [
        *flow("step", [clean(graph.device), f"{graph.steps} steps traced"], width),
        *flow("graph", [f"torch.fx: {phases[0]}", *phases[1:]] if phases else [], width),
        *flow("tensors", [f"{len(graph.tensors):,} with bytes", met, *left_out], width),
        *flow("peak", [peak], width),
    ]


def _operations(graph: JobGraphs, width: int) -> list[Text]:
    """The ops that take longest at least, with the side of the roofline that holds them back."""
    title = f"ops of a step; {clean(graph.device)} does {graph.ridge:,.1f} FLOPs while it moves a byte"
    head = f"  {'op':28}{'phase':>10}{'calls':>6}{'FLOPs/byte':>11}{'least ms':>10}  bound by"
    rows = [
        f"  {pad(shorten(clean(each.name), 27), 28)}{each.phase:>10}{each.calls:>6,}{each.intensity:>11,.2f}"
        f"{1000 * each.seconds:>10.3f}  {each.bound}"
        for each in graph.operations[:ROWS]
    ]
    return [Text(shorten(title, width), style="bold"), *(Text(shorten(row, width)) for row in (head, *rows))]


def _rows(graph: JobGraphs, width: int) -> list[Text]:
    longest = sorted(graph.tensors, key=lambda each: -each.nbytes * (each.end - each.start))[:ROWS]
    head = Text(f"  {'bytes':>10}  {'what':<16}{'node':<24}{'last read by':<24}", style="dim")
    return [head, *(Text(shorten(_row(each), width)) for each in longest)]


def _row(tensor: TensorLifetime) -> str:
    born = tensor.born or tensor.name
    what = LABELS.get(str(tensor.category), str(tensor.category))
    read = tensor.last_read or "-"
    return f"  {format_bytes(tensor.nbytes):>10}  {pad(what, 16)}{pad(shorten(clean(born), 23), 24)}{shorten(read, 24)}"
