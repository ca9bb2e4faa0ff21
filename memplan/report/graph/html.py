"""The lifetime graph as one page: a bar for each of the largest tensors, from the op that makes it to its end."""

from collections.abc import Iterator
from dataclasses import replace
from html import escape

from memplan.lifetime.graph import TensorLifetime
from memplan.measure.graphs import JobGraphs
from memplan.report.draw.layout import MAX_WIDTH
from memplan.report.draw.svg import BY_CATEGORY, category_class, picture
from memplan.report.graph.json import DOCUMENT
from memplan.report.graph.text import render as render_text
from memplan.report.html.page import PageFrame, page
from memplan.report.labels import LABELS
from memplan.text import clean
from memplan.units import format_bytes

WIDTH, LEFT, RIGHT, TOP, ROW = 960, 16, 16, 68, 5
"""Of the picture, in pixels; a row for each tensor."""
MOST_ROWS = 240
"""Tensors that are drawn: the largest by bytes times ops."""
STYLE = BY_CATEGORY


def render(graph: JobGraphs) -> str:
    """Write the graph as an HTML document that needs nothing else."""
    largest = sorted(graph.tensors, key=lambda each: -each.nbytes * (each.end - each.start))[:MOST_ROWS]
    kept = {each.id for each in largest}
    drawn = [each for each in graph.tensors if each.id in kept]
    title = clean(f"{graph.target}: {len(drawn):,} of {len(graph.tensors):,} tensors over the traced steps")
    size = (WIDTH, TOP + ROW * len(drawn) + 24)
    frame = PageFrame(
        kind="graph",
        title=f"{graph.target}: tensor lifetimes",
        versions={"memplan": graph.memplan_version},
    )
    body = [
        picture(title, _parts(drawn), size=size, left=LEFT, style=STYLE, alone=False),
        "<pre>",
        *(escape(line.plain) for line in render_text(graph, width=MAX_WIDTH)),
        "</pre>",
    ]
    # Of all tensors there may be millions of pairs that meet: the JSON is that of those that are drawn.
    shown = replace(graph, tensors=tuple(drawn), left_out=graph.left_out + len(graph.tensors) - len(drawn))
    return page(frame, body, DOCUMENT.plain(shown), picture_style=STYLE)


def _parts(drawn: list[TensorLifetime]) -> Iterator[str]:
    last = max((each.end for each in drawn), default=1)
    yield from _legend({str(each.category) for each in drawn})
    yield '<g class="lives">'
    for row, each in enumerate(sorted(drawn, key=lambda tensor: (tensor.start, tensor.end))):
        x, end = (LEFT + (WIDTH - LEFT - RIGHT) * max(moment, 0) / last for moment in (each.start, each.end))
        yield (
            f'<rect x="{x:.1f}" y="{TOP + ROW * row}" width="{max(end - x, 0.7):.1f}" height="{ROW - 1}" '
            f'class="{category_class(str(each.category))}"><title>{escape(_words(each))}</title></rect>'
        )
    yield "</g>"


def _legend(present: set[str]) -> Iterator[str]:
    x = LEFT
    for label in sorted(present):
        words = LABELS.get(label, label)
        yield f'<rect x="{x}" y="40" width="11" height="11" class="{category_class(label)}"/>'
        yield f'<text x="{x + 16}" y="50">{words}</text>'
        x += 32 + 8 * len(words)


def _words(tensor: TensorLifetime) -> str:
    owner = " · ".join(filter(None, [tensor.born or tensor.name, tensor.module, tensor.source]))
    read = f", last read by {tensor.last_read}" if tensor.last_read else ""
    return clean(f"{owner}: {format_bytes(tensor.nbytes)}, ops {tensor.start} to {tensor.end}{read}")
