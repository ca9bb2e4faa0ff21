"""The reports of op-level plans: a schedule for a graph from a file or for a target's compiled step."""

from collections.abc import Iterator

from rich.text import Text

from memplan.plan.checkpoint.schedule.answer import GraphAnswer
from memplan.report.checkpoint.text import rounded_up
from memplan.report.draw.layout import bounded, flow, hanging, head_line, paragraphs, stacked
from memplan.report.endings import STYLES, ending
from memplan.text import clean, shorten
from memplan.units import format_apart, format_bytes


def render(answer: GraphAnswer, *, width: int = 80, explain: bool = False, plan_file: str = "") -> list[Text]:
    """Write an answer as lines of styled text."""
    width = bounded(width)
    left = f"memplan {answer.memplan_version}  solved in {answer.solve_seconds:.1f} s"
    facts = [f"{answer.nodes:,} nodes", f"{answer.edges:,} edges", f"budget {format_bytes(answer.budget_bytes)}"]
    if answer.fixed_bytes is not None:
        facts += [f"{format_bytes(answer.fixed_bytes)} of it parameters, buffers and batch", "no optimizer state"]
    word = (ending(answer.outcome), STYLES[answer.outcome])
    remarks = [Text(line, style="dim") for item in _remarks(answer, width) for line in hanging("  ", item, width)]
    blocks = [
        [head_line(left, answer.target, width), *flow("graph", facts, width)],
        [Text.assemble(word, f"  {_figures(answer)}"), *remarks],
        [Text(line, style="green") for line in _apply(plan_file)] if plan_file else [],
        paragraphs("assumptions", answer.assumptions, width) if explain else [],
    ]
    return stacked(blocks, width)


def _figures(answer: GraphAnswer) -> str:
    if answer.outcome == "infeasible":
        return f"one node alone takes {format_bytes(answer.least_feasible_bytes or 0)}"
    if answer.peak_after_bytes is None or answer.overhead_ratio is None:
        return "nothing found"
    before, after = format_apart((answer.peak_before_bytes, answer.peak_after_bytes))
    return f"peak {before} → {after}  {100 * answer.overhead_ratio:+.2f} % cost"


def _apply(plan_file: str) -> tuple[str, str]:
    return "import memplan.runtime.partition", f'partition_fn = memplan.runtime.partition.load("{clean(plan_file)}")'


def _remarks(answer: GraphAnswer, width: int) -> Iterator[str]:
    if answer.binding:
        yield f"peak at {shorten(answer.binding, width - 10)}"
    if answer.fixed_bytes is not None and answer.schedule:
        yield f"{answer.again:,} ops run again"
    if answer.outcome == "timed_out" and answer.peak_after_bytes is not None:
        yield "over the budget: the lowest peak found"
    if answer.outcome == "optimal":
        yield "proved best"
    elif answer.gap is not None:
        of = f", of {answer.bound_for}" if answer.bound_for else ""
        yield f"at most {rounded_up(answer.gap)} from the best{of}"
