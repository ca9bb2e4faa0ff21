"""The memory-time curve of a checkpoint plan, drawn with characters."""

from collections.abc import Sequence

from rich.text import Text

from memplan.plan.checkpoint.answer_records import CheckpointAnswer, ParetoPoint
from memplan.units import format_bytes

ROWS = 7
_LABEL_CELLS = 9
POINT, CHOSEN, BUDGET = "•", "●", "┊"


def curve_lines(answer: CheckpointAnswer, width: int) -> list[Text]:
    """The curve: peak to the right, extra time upwards; the plan and the budget marked.

    Args:
        answer: Its ``pareto`` is the curve; nothing is drawn for fewer than two points.
        width: Terminal cells per line.
    """
    points = answer.pareto
    if len(points) < 2:
        return []
    chosen = ParetoPoint(peak_bytes=answer.peak_after_bytes, overhead_ratio=answer.overhead_ratio)
    columns = width - _LABEL_CELLS - 5
    scale = _Scale([*points, chosen], columns)
    cells = [[" "] * columns for _ in range(ROWS)]
    if scale.within(answer.budget_bytes):
        for line in cells:
            line[scale.column(answer.budget_bytes)] = BUDGET
    for point in points:
        cells[scale.row(point)][scale.column(point.peak_bytes)] = POINT
    if answer.fits:
        cells[scale.row(chosen)][scale.column(chosen.peak_bytes)] = CHOSEN
    labels = {ROWS - 1: f"{100 * scale.top:+.1f} %", 0: "+0.0 %"}
    rows = [
        Text.assemble((f"  {labels.get(row, ''):>{_LABEL_CELLS}} ", "dim"), ("".join(cells[row]), "cyan"))
        for row in reversed(range(ROWS))
    ]
    left, right = format_bytes(scale.low), format_bytes(scale.high)
    gap = max(1, columns - len(left) - len(right))
    legend = f"{CHOSEN} this plan · {POINT} others · {BUDGET} budget"
    indent = " " * (_LABEL_CELLS + 3)
    title = Text("extra time against peak; between traced plans by the block-level problem", style="dim")
    return [title, *rows, Text(f"{indent}{left}{' ' * gap}{right}", style="dim"), Text(indent + legend, style="dim")]


class _Scale:
    """Bytes → columns, shares → rows."""

    def __init__(self, points: Sequence[ParetoPoint], columns: int) -> None:
        self.low = min(point.peak_bytes for point in points)
        self.high = max(point.peak_bytes for point in points)
        self.top = max(point.overhead_ratio for point in points)
        self._columns = columns

    def within(self, peak: int) -> bool:
        """Does a peak lie on the axis?"""
        return self.low <= peak <= self.high

    def column(self, peak: int) -> int:
        return round((self._columns - 1) * (peak - self.low) / max(1, self.high - self.low))

    def row(self, point: ParetoPoint) -> int:
        return round((ROWS - 1) * point.overhead_ratio / self.top) if self.top > 0 else 0
