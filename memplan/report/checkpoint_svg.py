"""The memory-time curve of a checkpoint plan as a stand-alone SVG picture."""

from collections.abc import Iterator

from memplan.plan.checkpoint.answer_records import CheckpointAnswer
from memplan.report.layout import clean
from memplan.report.svg import picture
from memplan.units import format_bytes

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 76, 44, 56, 56
"""Margins, in pixels."""
STEPS = 4
"""Grid lines between the ends of each axis."""
# Colours by role, light and dark.
STYLE = """
  .axis { stroke: #57606a } .curve { fill: none; stroke: #0969da; stroke-width: 2 } .point { fill: #0969da }
  .plan { fill: #1a7f37 } .budget { stroke: #bc4c00; stroke-dasharray: 5 4 } .budget-text { fill: #bc4c00 }
  @media (prefers-color-scheme: dark) {
    .axis { stroke: #8b949e } .curve { stroke: #58a6ff } .point { fill: #58a6ff } .plan { fill: #3fb950 }
    .budget { stroke: #f0883e } .budget-text { fill: #f0883e }
  }
"""


def render(answer: CheckpointAnswer) -> str:
    """Draw the curve.

    Args:
        answer: Its ``pareto`` is the curve; without one only the plan and the unplanned step are drawn.

    Returns:
        An SVG document that needs nothing else.
    """
    return picture(_title(answer), _Picture(answer).parts(), size=(WIDTH, HEIGHT), left=LEFT, style=STYLE)


def _title(answer: CheckpointAnswer) -> str:
    return clean(f"{answer.target} on {answer.device}: extra time against peak")


class _Picture:
    """An answer in pixels."""

    def __init__(self, answer: CheckpointAnswer) -> None:
        self._answer = answer
        points = {(point.peak_bytes, point.overhead_ratio) for point in answer.pareto}
        self._curve = sorted(points | {(answer.peak_before_bytes, 0.0)})
        shown = [*self._curve, (answer.peak_after_bytes, answer.overhead_ratio)]
        self._low = min(peak for peak, _ in shown)
        self._high = max(peak for peak, _ in shown)
        self._top = max(share for _, share in shown) or 0.01

    def parts(self) -> Iterator[str]:
        """Grid, axes, budget, curve, points."""
        yield from self._grid()
        yield from self._budget()
        corners = " ".join(f"{self._x(peak):.1f},{self._y(share):.1f}" for peak, share in self._curve)
        yield f'<polyline class="curve" points="{corners}"/>'
        for peak, share in self._curve:
            yield self._dot("point", 3.5, peak, share)
        yield self._dot("plan", 6, self._answer.peak_after_bytes, self._answer.overhead_ratio)

    def _grid(self) -> Iterator[str]:
        bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
        for step in range(STEPS + 1):
            share, peak = self._top * step / STEPS, self._low + (self._high - self._low) * step // STEPS
            y, x = self._y(share), self._x(peak)
            kind = "grid" if step else "axis"
            yield f'<line class="{kind}" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{100 * share:+.1f} %</text>'
            yield f'<text x="{x:.1f}" y="{bottom + 20}" text-anchor="middle">{format_bytes(peak)}</text>'
        yield f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 12}" text-anchor="middle">device peak</text>'

    def _budget(self) -> Iterator[str]:
        budget = self._answer.budget_bytes
        if not self._low <= budget <= self._high:
            return
        x = self._x(budget)
        yield f'<line class="budget" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        yield f'<text class="budget-text" x="{x:.1f}" y="{TOP - 8}" text-anchor="middle">{format_bytes(budget)}</text>'

    def _dot(self, kind: str, radius: float, peak: int, share: float) -> str:
        words = f"{format_bytes(peak)}, {100 * share:+.1f} % time"
        return (
            f'<circle class="{kind}" cx="{self._x(peak):.1f}" cy="{self._y(share):.1f}" r="{radius}">'
            f"<title>{words}</title></circle>"
        )

    def _x(self, peak: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (peak - self._low) / max(1, self._high - self._low)

    def _y(self, share: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share / self._top
