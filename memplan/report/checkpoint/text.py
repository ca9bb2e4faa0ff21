"""The text report of ``memplan checkpoint-plan``: verdict, blocks, curve, how to apply it, and last what was traced."""

import math
from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.text import Text

from memplan.plan.checkpoint.blocks.answer.records import BlockRow, CheckpointAnswer
from memplan.report.checkpoint.chart import curve_lines
from memplan.report.draw.layout import bounded, explained, flow, hanging, head_line, pad, signed_percent, stacked
from memplan.report.endings import STYLES, ending
from memplan.runtime.checkpoint.records import Action
from memplan.text import clean
from memplan.tracing.records import ModelPlace
from memplan.units import format_apart, format_bytes

FINER = "--level op plans single ops, for torch.compile"
"""Where no module keeps anything of its own: what lies between modules is beyond a plan of blocks."""
WRITTEN = "-o plan.json writes the plan; --code prints it as plain torch"
ROOMY_WIDTH = 76
"""From here on the column of actions has its full width."""
ACTION_CELLS, NARROW_ACTION_CELLS = 18, 12
"""Width of the actions' names."""
FIGURE_CELLS = 10
"""Width of a size."""


def render(
    answer: CheckpointAnswer, *, width: int = 80, explain: bool = False, quiet: bool = False, plan_file: str = ""
) -> list[Text]:
    """Write an answer as lines of styled text, ``quiet`` its verdict; a plan that was written has a file."""
    width = bounded(width)
    blocks = [verdict_lines(answer, width)]
    if not quiet:
        blocks += [block_lines(answer, width), curve_lines(answer, width), apply_lines(answer, plan_file)]
        if explain:
            blocks += explained(answer.assumptions, answer.not_modelled, width)
        blocks.append(head_lines(answer, width))
    return stacked(blocks, width)


def head_lines(answer: CheckpointAnswer, width: int) -> list[Text]:
    """Versions and times, the step, the device."""
    traced = f"traced in {answer.trace_seconds:.1f} s"
    left = f"memplan {answer.memplan_version}  torch {answer.torch_version}  {traced}"
    traces = f"{answer.rounds} more trace{'s' if answer.rounds != 1 else ''}"
    proved = f", proved in {answer.prove_seconds:.1f} s by {traces}" if answer.rounds else ""
    effort = f"solved in {answer.solve_seconds:.1f} s{proved}"
    return [
        head_line(left, answer.target, width),
        *flow("step", [answer.step], width),
        *flow("device", [clean(answer.device), f"budget {format_bytes(answer.budget_bytes)}", effort], width),
    ]


def verdict_lines(answer: CheckpointAnswer, width: int) -> list[Text]:
    """How it ended, and the figures that were promised."""
    word, figures = verdict(answer).split("  ", 1)
    left = Text.assemble((word, STYLES[answer.outcome]), f"  {figures}")
    return [left, *(Text(line, style="dim") for item in remarks(answer) for line in hanging("  ", item, width))]


def verdict(answer: CheckpointAnswer) -> str:
    """``✓ FEASIBLE  peak 28.46 GiB → 23.47 GiB  +2.0 % time``."""
    before, after = format_apart((answer.peak_before_bytes, answer.peak_after_bytes))
    word = ending(answer.outcome)
    return f"{word}  peak {before} → {after}  {signed_percent(answer.overhead_ratio)} time"


def remarks(answer: CheckpointAnswer) -> Iterator[str]:
    """What stands below the verdict."""
    if not answer.fits:
        over = answer.peak_after_bytes - answer.budget_bytes
        yield f"{format_bytes(over)} over the budget of {format_bytes(answer.budget_bytes)}"
    yield _certainty(answer)
    if answer.binding:
        yield f"peak in {answer.binding}"
    if answer.least_feasible_bytes is not None:
        yield f"least budget {format_bytes(answer.least_feasible_bytes)}"


def _certainty(answer: CheckpointAnswer) -> str:
    """How sure it is that there is nothing better, in words."""
    match answer.outcome:
        case "optimal" if is_idle(answer):
            words = "the step fits without a plan"
        case "optimal":
            words = f"no {answer.bound_for} costs less and fits, whatever the allocator loses"
        case "feasible" if answer.gap is not None:
            words = f"at most {rounded_up(answer.gap)} of the step's time above the best {answer.bound_for}"
        case "feasible":
            words = "how far from the best is not known"
        case "infeasible" if answer.proved:
            words = f"no {answer.bound_for} fits, whatever the allocator loses"
        case "infeasible":
            words = "no plan was found that fits; that there is none is not proved"
        case "timed_out":
            words = "the solver ran out of time: --time-limit gives it more"
    return words


def is_idle(answer: CheckpointAnswer) -> bool:
    """Is there nothing to apply?"""
    return not answer.plan.blocks and not answer.plan.segments


def rounded_up(share: float) -> str:
    """A bound in per cent, never shown smaller than it is."""
    return f"{math.ceil(1e4 * share) / 100:.2f} %"


def block_lines(answer: CheckpointAnswer, width: int) -> list[Text]:
    """One line per run of blocks that do the same."""
    does = ACTION_CELLS if width >= ROOMY_WIDTH else NARROW_ACTION_CELLS
    names = width - does - 2 * FIGURE_CELLS - 16
    heading = f"  {'blocks':{names}}  {'do':{does}} {'keep':>{FIGURE_CELLS}}{'before':>{FIGURE_CELLS + 2}}{'time':>9}"
    lines = [Text(heading, style="dim")]
    extra = sum(row.seconds for row in answer.blocks)
    for rows in runs(answer.blocks):
        kept, before = sum(row.kept_bytes for row in rows), sum(row.kept_before_bytes for row in rows)
        share = answer.overhead_ratio * sum(row.seconds for row in rows) / extra if extra else 0.0
        lines.append(
            Text.assemble(
                f"  {pad(run_name(rows), names)}  ",
                (pad(run_action(rows[0]), does), "" if rows[0].action is Action.KEEP else "cyan"),
                f" {format_bytes(kept):>{FIGURE_CELLS}}{format_bytes(before):>{FIGURE_CELLS + 2}}",
                f"{signed_percent(share) if share else '':>9}",
            )
        )
        if rows[0].saved:
            lines += [Text(line, style="dim") for line in hanging(" " * (names + 4), saved_words(rows[0]), width)]
    for words in joint_words(answer):
        lines += [Text(line, style="dim") for line in hanging("  ", words, width)]
    return lines if answer.blocks else []


def joint_words(answer: CheckpointAnswer) -> Iterator[str]:
    """What blocks do together: ``layers.0 … 2 (3) run again as one``, outermost first."""
    for segment in answer.plan.segments:
        yield f"{_range_name(segment.modules)} run again as one"
    if answer.plan.prefetch:
        yield "what is offloaded is fetched back while the offloaded block before it runs backward"


def runs(rows: Sequence[BlockRow]) -> Iterator[list[BlockRow]]:
    """Neighbours that do the same thing, together."""
    for _, group in groupby(rows, key=lambda row: (row.kind, row.action, row.saved, row.segment)):
        yield list(group)


def run_name(rows: Sequence[BlockRow]) -> str:
    """``layers.0 … layers.7  (8)``."""
    return _range_name([row.module for row in rows])


def _range_name(modules: Sequence[str]) -> str:
    if len(modules) == 1:
        return modules[0]
    return f"{modules[0]} … {modules[-1].rpartition('.')[2]} ({len(modules)})"


def run_action(row: BlockRow) -> str:
    """What a block does, in words."""
    match row.action:
        case Action.SELECTIVE:
            words = "selective"
        case Action.CHECKPOINT:
            words = "checkpoint"
        case Action.OFFLOAD:
            words = "offload"
        case Action.KEEP:
            words = "keep all"
    if row.segment is None:
        return words
    # A segment's own blocks keep what they make when it is run again, as one, in backward.
    return "checkpoint, as one" if row.action is Action.KEEP else f"{words}, nested"


def saved_words(row: BlockRow) -> str:
    """``keeps addmm x2, mm``."""
    return f"keeps {', '.join(saved.removeprefix('aten.').replace('.default', '') for saved in row.saved)}"


def apply_lines(answer: CheckpointAnswer, plan_file: str) -> list[Text]:
    """What to paste."""
    if is_idle(answer):
        # The whole step of a program is no function that could be captured.
        other = f"; {FINER}" if answer.model_place is None else ""
        return [Text("nothing to apply" + (": the step fits as it is" if answer.fits else other))]
    if not answer.fits and not plan_file:
        return []
    if not plan_file and answer.model_place is None:
        return [Text(WRITTEN, style="dim")]
    place = answer.model_place or ModelPlace(expression="", line="")
    call = f'memplan.apply({clean(place.expression) or "model"}, "{clean(plan_file) or "plan.json"}")'
    lines = [Text(f"add after {clean(place.line)}", style="dim")] if place.line else []
    lines += [Text("import memplan", style="green"), Text(call, style="green")]
    return lines if plan_file else [*lines, Text(WRITTEN, style="dim")]
