"""How likely a run of drawn lengths runs out of memory, in a few lines."""

from rich.text import Text

from memplan.measure.records import TailRisk
from memplan.report.draw.layout import hanging
from memplan.report.labels import LABEL_CELLS
from memplan.text import clean
from memplan.units import format_bytes


def tail_lines(risk: TailRisk | None, width: int) -> list[Text]:
    """The chance, what it would be at the ends of the peak's interval, and what was drawn."""
    if risk is None:
        return []
    chance = f"{_share(risk.chance)} [{_share(risk.low_chance)} to {_share(risk.high_chance)}]"
    run = f"{chance} run out of memory within {risk.steps:,} steps of {clean(risk.lengths)}"
    lines = hanging(f"  {'drawn lengths':{LABEL_CELLS}}  ", run, width)
    margin = f"  {'':{LABEL_CELLS}}  "
    interval = f"{_share(risk.least_chance)} to {_share(risk.most_chance)} over the peak's interval"
    lines += hanging(margin, f"{interval}, which is that of the longest, {risk.longest:,}", width)
    played = f"{risk.runs:,} runs of {risk.played_steps:,} steps" if risk.runs else "no step fits"
    peak = f"without a limit a run takes {format_bytes(risk.device_bytes)}"
    return [Text(line) for line in [*lines, *hanging(margin, f"{peak}; {played} drawn, seed {risk.seed}", width)]]


def _share(share: float) -> str:
    return f"{100 * share:.1f} %"
