"""The memory-time curve of a checkpoint plan as a stand-alone SVG picture."""

from memplan.plan.checkpoint.blocks.answer.records import CheckpointAnswer
from memplan.report.draw.layout import signed_percent
from memplan.report.draw.scatter_svg import Dot
from memplan.report.draw.scatter_svg import render as draw
from memplan.text import clean
from memplan.units import format_bytes


def render(answer: CheckpointAnswer, *, alone: bool = True) -> str:
    """Draw the curve as an SVG document, ``alone`` or for a page.

    Without a curve (``pareto``) only the plan and the unplanned step are drawn.
    """
    points = {(point.peak_bytes, point.overhead_ratio) for point in answer.pareto}
    return draw(
        clean(f"{answer.target} on {answer.device}: extra time against peak"),
        [_dot(*point) for point in sorted(points | {(answer.peak_before_bytes, 0.0)})],
        chosen=_dot(answer.peak_after_bytes, answer.overhead_ratio),
        mark=answer.budget_bytes,
        figure_text=signed_percent,
        alone=alone,
    )


def _dot(size: int, share: float) -> Dot:
    return Dot(size=size, figure=share, words=f"{format_bytes(size)}, {signed_percent(share)} time")
