"""A timeline drawn with block characters: what is allocated filled, what is reserved beyond it shaded."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from rich.text import Text

from memplan.units import format_bytes

RISING = " ▁▂▃▄▅▆▇█"
SHADE = "░"
ROWS = 6
_LABEL_CELLS = 10


def chart_lines(allocated: Sequence[int], reserved: Sequence[int], marked: int, width: int) -> list[Text]:
    """Rows of a chart, its axis and the legend.

    An arrow points at the marked moment. Nothing where nothing was ever reserved.
    """
    top = max(reserved)
    columns = width - _LABEL_CELLS - 4
    if top <= 0 or len(allocated) < 2:
        return []
    low = _heights(allocated, columns, top)
    high = _heights(reserved, columns, top)
    labels = {ROWS - 1: format_bytes(top), 0: "0 B"}
    lines = [
        Text.assemble(
            (f"  {labels.get(row, ''):>{_LABEL_CELLS}} ", "dim"),
            *_cells(low, high, row),
        )
        for row in reversed(range(ROWS))
    ]
    # The first column that the moment is shown in.
    column = -(-marked * columns // len(allocated))
    words = "peak " if column >= 5 else ""
    pointer = " " * (column - len(words)) + words + "^" + ("" if words else " peak")
    legend = f"event by event · {RISING[-1]} allocated · {SHADE} only reserved"
    lines.append(Text(" " * (_LABEL_CELLS + 3) + pointer))
    lines.append(Text(" " * (_LABEL_CELLS + 3) + legend, style="dim"))
    return lines


def _heights(values: Sequence[int], columns: int, top: int) -> list[int]:
    """Eighths of a row for every column: the highest of the moments that it stands for."""
    count = len(values)
    starts = [column * count // columns for column in range(columns + 1)]
    highest = (max(values[start : max(end, start + 1)]) for start, end in pairwise(starts))
    # Rounded up, so that whatever is there at all is seen.
    return [-(-8 * ROWS * value // top) for value in highest]


def _cells(low: Sequence[int], high: Sequence[int], row: int) -> Iterator[tuple[str, str]]:
    for filled, shaded in zip(low, high, strict=True):
        level = min(max(filled - 8 * row, 0), 8)
        if level:
            yield RISING[level], "cyan"
        else:
            yield (SHADE if shaded > 8 * row else " "), "dim"
