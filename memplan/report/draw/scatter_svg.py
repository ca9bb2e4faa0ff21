"""Points as an SVG picture: bytes to the right, another figure upwards from 0."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from memplan.report.draw.svg import picture
from memplan.units import format_apart, format_bytes

WIDTH, HEIGHT = 720, 380
LEFT, RIGHT, TOP, BOTTOM = 80, 44, 56, 56
"""Margins, in pixels."""
STEPS = 4
"""Grid lines between the ends of each axis."""
RADIUS, CHOSEN_RADIUS = 4, 6
STYLE = """
  .axis { stroke: var(--muted) } .curve { fill: none; stroke: var(--accent); stroke-width: 2 }
  .point { fill: var(--accent) } .chosen { fill: var(--good) }
  .mark { stroke: var(--warn); stroke-dasharray: 5 4 } .mark-text { fill: var(--warn) }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """One point."""

    size: int
    """Bytes: how far to the right."""
    figure: float
    """How far up."""
    words: str
    """What is said where a pointer rests on it."""


def render(
    title: str,
    points: Sequence[Dot],
    *,
    chosen: Dot | None,
    mark: int,
    figure_text: Callable[[float], str],
    alone: bool = True,
) -> str:
    """Draw points, from left to right, joined by a line: an SVG document, ``alone`` or for a page with ``STYLE``.

    ``chosen`` stands out, on the line or beside it; at ``mark`` bytes a line goes up, if they lie between the points.
    """
    parts = _Picture([*points, *([chosen] if chosen else [])]).parts(points, chosen, mark, figure_text)
    return picture(title, parts, size=(WIDTH, HEIGHT), left=LEFT, style=STYLE, alone=alone)


class _Picture:
    """The scales of both axes."""

    def __init__(self, shown: Sequence[Dot]) -> None:
        self._low = min(dot.size for dot in shown)
        self._high = max(dot.size for dot in shown)
        self._top = max(dot.figure for dot in shown) or 0.01

    def parts(
        self, points: Sequence[Dot], chosen: Dot | None, mark: int, figure_text: Callable[[float], str]
    ) -> Iterator[str]:
        """Grid, mark, curve, points."""
        yield from self._grid(figure_text)
        if self._low <= mark <= self._high:
            x = self._x(mark)
            yield f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
            yield f'<text class="mark-text" x="{x:.1f}" y="{TOP - 8}" text-anchor="middle">{format_bytes(mark)}</text>'
        corners = " ".join(f"{self._x(dot.size):.1f},{self._y(dot.figure):.1f}" for dot in points)
        yield f'<polyline class="curve" points="{corners}"/>'
        for dot in points:
            if dot != chosen:
                yield self._dot("point", RADIUS, dot)
        if chosen is not None:
            yield self._dot("chosen", CHOSEN_RADIUS, chosen)

    def _grid(self, figure_text: Callable[[float], str]) -> Iterator[str]:
        bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
        sizes = [self._low + (self._high - self._low) * step // STEPS for step in range(STEPS + 1)]
        for step, (size, told) in enumerate(zip(sizes, format_apart(sizes), strict=True)):
            figure = self._top * step / STEPS
            y, x = self._y(figure), self._x(size)
            yield f'<line class="{"grid" if step else "axis"}" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(figure_text(figure))}</text>'
            yield f'<text x="{x:.1f}" y="{bottom + 20}" text-anchor="middle">{told}</text>'
        yield f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 12}" text-anchor="middle">device peak</text>'

    def _dot(self, kind: str, radius: int, dot: Dot) -> str:
        return (
            f'<circle class="{kind}" cx="{self._x(dot.size):.1f}" cy="{self._y(dot.figure):.1f}" r="{radius}">'
            f"<title>{escape(dot.words)}</title></circle>"
        )

    def _x(self, size: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (size - self._low) / max(1, self._high - self._low)

    def _y(self, figure: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * figure / self._top
