"""Memory against throughput, drawn with characters."""

from rich.text import Text

from memplan.plan.recommend.records import Recommendation
from memplan.units import format_bytes

ROWS = 7
_LABEL_CELLS = 9
POINT, CHOSEN, LIMIT = "•", "●", "┊"


def front_lines(answer: Recommendation, width: int) -> list[Text]:
    """The Pareto front: peak to the right, samples per second upwards; the best and the limit marked.

    Args:
        answer: Its ``pareto`` is the front; nothing is drawn for fewer than two points.
        width: Terminal cells per line.
    """
    points = answer.pareto
    if len(points) < 2:
        return []
    columns = width - _LABEL_CELLS - 5
    low, high = points[0].device_bytes, points[-1].device_bytes
    top = max(point.samples_per_second for point in points)

    def column(peak: int) -> int:
        return round((columns - 1) * (peak - low) / max(1, high - low))

    def row(rate: float) -> int:
        return round((ROWS - 1) * rate / top)

    cells = [[" "] * columns for _ in range(ROWS)]
    if low <= answer.limit_bytes <= high:
        for line in cells:
            line[column(answer.limit_bytes)] = LIMIT
    for point in points:
        cells[row(point.samples_per_second)][column(point.device_bytes)] = POINT
    best = answer.best
    if best is not None and low <= best.device_bytes <= high:
        cells[row(best.samples_per_second)][column(best.device_bytes)] = CHOSEN
    labels = {ROWS - 1: f"{top:.1f}", 0: "0.0"}
    rows = [
        Text.assemble((f"  {labels.get(index, ''):>{_LABEL_CELLS}} ", "dim"), ("".join(cells[index]), "cyan"))
        for index in reversed(range(ROWS))
    ]
    left, right = format_bytes(low), format_bytes(high)
    gap = max(1, columns - len(left) - len(right))
    indent = " " * (_LABEL_CELLS + 3)
    return [
        Text("samples per second against peak: what nothing else beats in both", style="dim"),
        *rows,
        Text(f"{indent}{left}{' ' * gap}{right}", style="dim"),
        Text(f"{indent}{CHOSEN} best · {POINT} others · {LIMIT} limit", style="dim"),
    ]
