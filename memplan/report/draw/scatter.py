"""Points drawn with characters: bytes to the right, another figure upwards from 0."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from memplan.units import format_apart

ROWS = 7
POINT, CHOSEN, MARK = "•", "●", "┊"
_LABEL_CELLS = 9

Point = tuple[int, float]
"""Bytes, and the figure that is drawn upwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What is written around the points."""

    title: str
    top: str
    """At the highest figure."""
    bottom: str
    """At 0."""
    legend: str


def scatter(points: Sequence[Point], *, chosen: Point | None, mark: int, words: Words, width: int) -> list[Text]:
    """Draw points.

    ``chosen`` stands out; at ``mark`` bytes a line goes up, if they lie between the points.
    """
    every = [*points, *([chosen] if chosen else [])]
    low, high = min(size for size, _ in every), max(size for size, _ in every)
    top = max(figure for _, figure in every)
    columns = width - _LABEL_CELLS - 5
    cells = [[" "] * columns for _ in range(ROWS)]

    def column(size: int) -> int:
        return round((columns - 1) * (size - low) / max(1, high - low))

    if low <= mark <= high:
        for line in cells:
            line[column(mark)] = MARK
    for symbol, shown in ((POINT, points), (CHOSEN, [chosen] if chosen else [])):
        for size, figure in shown:
            cells[round((ROWS - 1) * figure / top) if top > 0 else 0][column(size)] = symbol
    left, right = format_apart((low, high))
    return _framed(cells, (left, right), words)


def _framed(cells: list[list[str]], ends: tuple[str, str], words: Words) -> list[Text]:
    labels = {ROWS - 1: words.top, 0: words.bottom}
    rows = [
        Text.assemble((f"  {labels.get(row, ''):>{_LABEL_CELLS}} ", "dim"), ("".join(cells[row]), "cyan"))
        for row in reversed(range(ROWS))
    ]
    gap, indent = max(1, len(cells[0]) - sum(map(len, ends))), " " * (_LABEL_CELLS + 3)
    axis = Text(f"{indent}{ends[0]}{' ' * gap}{ends[1]}", style="dim")
    return [Text(words.title, style="dim"), *rows, axis, Text(indent + words.legend, style="dim")]
