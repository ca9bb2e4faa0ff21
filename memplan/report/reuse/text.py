"""The text report of ``memplan reuse-plan``: the arena, what it is compared with, and a coarse picture of it."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from memplan.plan.reuse.answer_records import MethodOutcome, ReuseAnswer
from memplan.plan.reuse.bound import stretches
from memplan.plan.reuse.records import ArenaBuffer, ArenaPlacement
from memplan.report.draw.layout import bounded, flow, head_line, pad, paragraphs, stacked
from memplan.report.endings import STYLES, ending
from memplan.report.labels import LABELS
from memplan.text import clean, shorten
from memplan.units import format_bytes

COLOURS = {
    "activation": "cyan",
    "gradient": "magenta",
    "temporary": "yellow",
    "workspace": "red",
    "input": "green",
    "optimizer_state": "blue",
    "backward": "magenta",
}
"""Label of a buffer → colour of its cells; others have none."""
SHADES = " ░▒▓█"
ROWS = 12
"""Of the picture."""
LABEL_CELLS = 10
"""Width of the picture's offsets."""
NAME_CELLS, FIGURE_CELLS = 34, 11


@dataclass(frozen=True, slots=True, kw_only=True)
class RasterCell:
    """One cell of the grid."""

    share: float
    """Of its area that some buffer covers, from 0 to 1."""
    label: str
    """Whose buffers cover most of it; empty where nothing does."""


def render(answer: ReuseAnswer, *, width: int = 80, explain: bool = False, quiet: bool = False) -> list[Text]:
    """Write an answer as lines of styled text."""
    width = bounded(width)
    blocks = [verdict_lines(answer, width)]
    if not quiet:
        blocks.append(compared_lines(answer))
        if len(answer.methods) > 1:
            blocks.append(method_lines(answer, width))
        blocks.append(picture_lines(answer, width))
        if explain and answer.surroundings:
            blocks.append(paragraphs("assumptions", answer.surroundings.assumptions, width))
        blocks.append(head_lines(answer, width))
    return stacked(blocks, width)


def head_lines(answer: ReuseAnswer, width: int) -> list[Text]:
    """Version, target, what was placed, and for how long."""
    left = f"memplan {answer.memplan_version}"
    buffers = buffers_in_words(answer)
    read = f"{'traced' if answer.kind == 'step' else 'read'} in {answer.read_seconds:.1f} s"
    lines = [head_line(left, answer.target, width)]
    if answer.surroundings:
        items = [*filter(None, [answer.surroundings.step]), clean(answer.surroundings.device)]
        lines += flow("step", items, width)
    return [*lines, *flow("arena", [buffers, read, f"placed in {answer.solve_seconds:.1f} s"], width)]


def buffers_in_words(answer: ReuseAnswer) -> str:
    """How many, and of how many steps."""
    steps = answer.surroundings.repetitions if answer.surroundings else 1
    return f"{len(answer.problem.buffers):,} buffers" + (f" of {steps} steps" if steps > 1 else "")


def verdict_lines(answer: ReuseAnswer, width: int) -> list[Text]:
    """How it ended: the arena, and how far from the least that is."""
    head = (ending(answer.outcome), STYLES[answer.outcome])
    placement, capacity = answer.placement, answer.problem.capacity
    found = f"  arena {format_bytes(placement.height)}" if placement else "  no placement"
    if not answer.fits and capacity is not None:
        found += f" for a capacity of {format_bytes(capacity)}"
    return [
        Text.assemble(head, found),
        *(Text(f"  {shorten(words, width - 2)}", style="dim") for words in _how(answer)),
    ]


def _how(answer: ReuseAnswer) -> list[str]:
    if answer.outcome == "infeasible":
        return [answer.reason]
    if answer.outcome == "timed_out":
        return [f"nothing that fits was found in time; no arena is below {format_bytes(answer.bound_bytes)}"]
    if answer.outcome == "optimal":
        return [f"no arena is smaller; found by {answer.method}"]
    assert answer.placement is not None  # noqa: S101 - something fits.
    over = answer.placement.height - answer.bound_bytes
    share = 100 * over / answer.bound_bytes if answer.bound_bytes else 0.0
    return [f"at most {format_bytes(over)} ({share:.2f} %) above the least possible", f"found by {answer.method}"]


def compared_lines(answer: ReuseAnswer) -> list[Text]:
    """``compared``, as lines."""
    rows = compared(answer)
    return [Text(f"  {pad(name, NAME_CELLS)}{format_bytes(size):>{FIGURE_CELLS}}") for name, size in rows]


def compared(answer: ReuseAnswer) -> list[tuple[str, int]]:
    """The arena beside its capacity, the bound, the caching allocator and no reuse at all: names and bytes."""
    rows: list[tuple[str, int]] = [("no arena is below", answer.bound_bytes), ("without reuse", answer.total_bytes)]
    if answer.problem.capacity is not None:
        rows.insert(0, ("capacity", answer.problem.capacity))
    if answer.placement:
        rows.insert(0, ("arena", answer.placement.height))
    if around := answer.surroundings:
        beside = around.persistent_bytes + around.outside_bytes
        rows.append(("beside it, all the time", around.persistent_bytes))
        if around.outside_bytes:
            rows.append(("other CUDA streams", around.outside_bytes))
        if answer.placement:
            rows.append(("together", answer.placement.height + beside))
        rows.append(("reserved by the caching allocator", around.reserved_bytes))
    return rows


def method_lines(answer: ReuseAnswer, width: int) -> list[Text]:
    """A row for each method: how it ended, its arena and bound, and its time."""
    head = f"  {'method':<10}{'ended':<12}{'arena':>12}{'bound':>12}{'seconds':>9}"
    return [Text(head, style="dim"), *(line for row in answer.methods for line in _method_row(row, width))]


def _method_row(row: MethodOutcome, width: int) -> list[Text]:
    if row.outcome is None:
        return [Text(f"  {row.name:<10}{shorten('did not run: ' + row.refusal, width - 12)}", style="dim")]
    height, bound = ("-" if each is None else format_bytes(each) for each in (row.height_bytes, row.bound_bytes))
    line = Text.assemble(
        f"  {row.name:<10}",
        (f"{ending(row.outcome):<12}", STYLES[row.outcome]),
        f"{height:>12}{bound:>12}{row.seconds:>9.2f}",
    )
    return [line, *([Text(f"  {'':<10}{shorten(row.note, width - 12)}", style="dim")] if row.note else [])]


def picture_lines(answer: ReuseAnswer, width: int) -> list[Text]:
    """Offsets over time: the fuller a cell, the darker; its colour says whose bytes are most of it."""
    placement = answer.placement
    if placement is None or not placement.height:
        return []
    columns = width - LABEL_CELLS - 4
    labels = answer.surroundings.labels if answer.surroundings else ()
    grid = raster(answer.problem.buffers, placement, labels, columns=columns, rows=ROWS, height=placement.height)
    names = {ROWS - 1: format_bytes(placement.height), 0: "0 B"}
    lines = [
        Text.assemble(
            (f"  {names.get(row, ''):>{LABEL_CELLS}} ", "dim"),
            *((_shade(cell.share), COLOURS.get(cell.label, "")) for cell in grid[row]),
        )
        for row in reversed(range(ROWS))
    ]
    return [*lines, _legend(answer)]


def _shade(share: float) -> str:
    """A cell wholly used is full; one hardly used is not blank."""
    return SHADES[-1] if share > 1 - 1e-9 else SHADES[min(3, 1 + int(share * 3))] if share > 0 else SHADES[0]


def _legend(answer: ReuseAnswer) -> Text:
    used = dict.fromkeys(answer.surroundings.labels) if answer.surroundings else {}
    words = [(f" {LABELS.get(label, label)}", COLOURS[label]) for label in COLOURS if label in used]
    return Text.assemble((" " * (LABEL_CELLS + 3) + "time →", "dim"), *words)


def raster(
    buffers: Sequence[ArenaBuffer],
    placement: ArenaPlacement,
    labels: Sequence[str],
    *,
    columns: int,
    rows: int,
    height: int,
) -> list[list[RasterCell]]:
    """Draw a placement into cells, rows from the lowest offset up.

    Columns go from the first birth to the last end, the topmost row ends at ``height``. Without labels nothing is known
    of what buffers hold.
    """
    first = min((buffer.start for buffer in buffers), default=0)
    width = max((buffer.end for buffer in buffers), default=1) - first
    area: defaultdict[tuple[int, int], defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for index, (buffer, offset) in enumerate(zip(buffers, placement.offsets, strict=True)):
        label = labels[index] if labels else ""
        across = _covered(offset / height * rows, (offset + buffer.size) / height * rows, rows)
        for start, end in stretches(buffer):
            along = _covered((start - first) / width * columns, (end - first) / width * columns, columns)
            for row, high in across:
                for column, wide in along:
                    area[row, column][label] += high * wide
    return [[_cell(area.get((row, column), {})) for column in range(columns)] for row in range(rows)]


def _covered(start: float, end: float, cells: int) -> list[tuple[int, float]]:
    """Cells that ``[start, end)`` meets, and how much of each it covers."""
    return [
        (cell, min(end, cell + 1) - max(start, cell))
        for cell in range(int(start), min(cells, int(end) + 1))
        if min(end, cell + 1) > max(start, cell)
    ]


def _cell(shares: dict[str, float]) -> RasterCell:
    if not shares:
        return RasterCell(share=0.0, label="")
    return RasterCell(share=min(1.0, sum(shares.values())), label=max(shares, key=lambda label: shares[label]))
