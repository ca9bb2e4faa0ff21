"""Memory against throughput, drawn with characters."""

from rich.text import Text

from memplan.plan.recommend.records import Recommendation
from memplan.report.draw.scatter import CHOSEN, MARK, POINT, Words, scatter


def front_lines(answer: Recommendation, width: int) -> list[Text]:
    """The Pareto front: peak to the right, samples per second upwards; the best and the limit marked.

    Nothing is drawn for fewer than two points.
    """
    if len(answer.pareto) < 2:
        return []
    points = [(point.device_bytes, point.samples_per_second) for point in answer.pareto]
    best = answer.best
    # With weight on memory the best need not be on the front, nor between its ends.
    is_shown = best is not None and points[0][0] <= best.device_bytes <= points[-1][0]
    chosen = (best.device_bytes, best.samples_per_second) if best is not None and is_shown else None
    marks = (*((f"{CHOSEN} best",) if chosen else ()), f"{POINT} others", f"{MARK} limit")
    words = Words(
        title=f"{answer.counted} per second against peak: what nothing else beats in both",
        top=f"{max(rate for _, rate in points):.1f}",
        bottom="0.0",
        legend=" · ".join(marks),
    )
    return scatter(points, chosen=chosen, mark=answer.limit_bytes, words=words, width=width)
