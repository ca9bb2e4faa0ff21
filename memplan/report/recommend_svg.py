"""Memory against throughput as an SVG picture."""

from collections.abc import Iterator

from memplan.plan.recommend.records import Evaluated, Recommendation
from memplan.report.svg import picture
from memplan.units import format_bytes

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 80, 44, 56, 56
STEPS = 4
STYLE = """
  .axis { stroke: #57606a } .front { fill: none; stroke: #0969da; stroke-width: 2 }
  .point { fill: #0969da } .best { fill: #1a7f37 } .limit { stroke: #cf222e; stroke-dasharray: 5 4 }
"""


def render(answer: Recommendation) -> str:
    """The Pareto front, the best marked."""
    return picture(
        "samples per second against device peak",
        _Front(answer).parts(),
        size=(WIDTH, HEIGHT),
        left=LEFT,
        style=STYLE,
    )


class _Front:
    """The front with its scales."""

    def __init__(self, answer: Recommendation) -> None:
        self._answer = answer
        self._points = answer.pareto
        self._low, self._high = self._points[0].device_bytes, self._points[-1].device_bytes
        self._top = max(point.samples_per_second for point in self._points)

    def parts(self) -> Iterator[str]:
        """Grid, limit, front, points."""
        yield from self._grid()
        limit = self._answer.limit_bytes
        if self._low <= limit <= self._high:
            x = self._x(limit)
            yield f'<line class="limit" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
            yield f'<text x="{x:.1f}" y="{TOP - 8}" text-anchor="middle">{format_bytes(limit)}</text>'
        corners = " ".join(
            f"{self._x(each.device_bytes):.1f},{self._y(each.samples_per_second):.1f}" for each in self._points
        )
        yield f'<polyline class="front" points="{corners}"/>'
        for each in self._points:
            yield self._dot("best" if each == self._answer.best else "point", each)

    def _grid(self) -> Iterator[str]:
        bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
        for step in range(STEPS + 1):
            rate, peak = self._top * step / STEPS, self._low + (self._high - self._low) * step // STEPS
            y, x = self._y(rate), self._x(peak)
            yield f'<line class="{"grid" if step else "axis"}" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{rate:.1f}</text>'
            yield f'<text x="{x:.1f}" y="{bottom + 20}" text-anchor="middle">{format_bytes(peak)}</text>'
        yield f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 12}" text-anchor="middle">device peak</text>'

    def _dot(self, kind: str, each: Evaluated) -> str:
        from memplan.report.page import text

        words = f"{each.candidate.words}: {format_bytes(each.device_bytes)}, {each.samples_per_second:.2f} samples/s"
        return (
            f'<circle class="{kind}" cx="{self._x(each.device_bytes):.1f}" cy="{self._y(each.samples_per_second):.1f}" '
            f'r="{6 if kind == "best" else 4}"><title>{text(words)}</title></circle>'
        )

    def _x(self, peak: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (peak - self._low) / max(1, self._high - self._low)

    def _y(self, rate: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * rate / self._top
