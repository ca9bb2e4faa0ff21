"""Memory against throughput as an SVG picture."""

from memplan.plan.recommend.records import Evaluated, Recommendation
from memplan.report.draw.scatter_svg import Dot
from memplan.report.draw.scatter_svg import render as draw
from memplan.text import clean
from memplan.units import format_bytes


def render(answer: Recommendation, *, alone: bool = True) -> str:
    """The Pareto front; the best marked, if it lies on it or between its ends."""
    best = answer.best
    ends = [each.device_bytes for each in answer.pareto]
    return draw(
        f"{answer.counted} per second against device peak",
        [_dot(each) for each in answer.pareto],
        chosen=_dot(best) if best is not None and min(ends) <= best.device_bytes <= max(ends) else None,
        mark=answer.limit_bytes,
        figure_text="{:.1f}".format,
        alone=alone,
    )


def _dot(each: Evaluated) -> Dot:
    rate = each.samples_per_second
    words = f"{each.candidate.words}: {format_bytes(each.device_bytes)}, {rate:.2f} {each.candidate.counted}/s"
    return Dot(size=each.device_bytes, figure=rate, words=clean(words))
