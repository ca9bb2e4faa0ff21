"""The memory-time curve of a checkpoint plan, drawn with characters."""

from rich.text import Text

from memplan.plan.checkpoint.blocks.answer.records import CheckpointAnswer
from memplan.report.draw.scatter import CHOSEN, MARK, POINT, Words, scatter


def curve_lines(answer: CheckpointAnswer, width: int) -> list[Text]:
    """The curve: peak to the right, extra time upwards; the plan and the budget marked.

    Nothing is drawn for fewer than two points.
    """
    if len(answer.pareto) < 2:
        return []
    points = [(point.peak_bytes, point.overhead_ratio) for point in answer.pareto]
    chosen = (answer.peak_after_bytes, answer.overhead_ratio) if answer.fits else None
    top = max(share for _, share in [*points, *([chosen] if chosen else [])])
    peaks = [peak for peak, _ in [*points, *([chosen] if chosen else [])]]
    words = Words(
        title="extra time against peak; between traced plans by the block-level problem",
        top=f"{100 * top:+.1f} %",
        bottom="+0.0 %",
        legend=" · ".join(
            [
                *([f"{CHOSEN} this plan"] if chosen else []),
                f"{POINT} others" if chosen else f"{POINT} plans",
                *([f"{MARK} budget"] if min(peaks) <= answer.budget_bytes <= max(peaks) else []),
            ]
        ),
    )
    return scatter(points, chosen=chosen, mark=answer.budget_bytes, words=words, width=width)
