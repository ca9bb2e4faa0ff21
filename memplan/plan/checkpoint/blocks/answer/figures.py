"""Figures of the reported plan by the formula of memory and time, block by block."""

from dataclasses import dataclass

from memplan.plan.checkpoint.blocks.answer.inputs import AnswerInputs
from memplan.plan.checkpoint.blocks.answer.records import BlockRow
from memplan.plan.checkpoint.blocks.problem.memory import peak
from memplan.plan.checkpoint.blocks.problem.records import BlockChoice, BlockProblem, ModuleBlock, Option
from memplan.plan.checkpoint.blocks.problem.seconds import block_seconds
from memplan.units import Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFigures:
    """Figures of a plan by the formula."""

    blocks: tuple[BlockRow, ...]
    """Every block in order."""
    activation_before_bytes: Bytes
    """Bytes at the unplanned peak that are no fixed ones."""
    binding: str
    """Name of the position at which the plan's peak is reached."""
    extra_seconds: float
    """Extra time of the plan in a step."""


def plan_figures(inputs: AnswerInputs) -> PlanFigures:
    """Return the figures of the best traced plan."""
    problem, proof = inputs.problem, inputs.proof
    most, at = peak(problem, inputs.unplanned.choice)
    _, binding = peak(proof.problem, proof.traced.choice)
    seconds = block_seconds(problem, proof.traced.choice)
    return PlanFigures(
        blocks=_rows(problem, proof.traced.choice, seconds),
        activation_before_bytes=Bytes(most - problem.positions[at].fixed_bytes),
        binding=problem.positions[binding].name,
        extra_seconds=sum(seconds) + sum(proof.traced.choice.stalls),
    )


def _rows(problem: BlockProblem, choice: BlockChoice, seconds: tuple[float, ...]) -> tuple[BlockRow, ...]:
    inside: dict[int, int] = {}
    for index, (first, end) in enumerate(choice.segments):
        inside.update(dict.fromkeys(range(first, end), index))
    return tuple(
        _row(block, block.options[option], extra, inside.get(index))
        for index, (block, option, extra) in enumerate(zip(problem.blocks, choice.options, seconds, strict=True))
    )


def _row(block: ModuleBlock, option: Option, seconds: float, segment: int | None) -> BlockRow:
    return BlockRow(
        module=block.module,
        kind=block.kind,
        action=option.action,
        saved=tuple(f"{entry.op} x{len(entry.calls)}" if len(entry.calls) > 1 else entry.op for entry in option.saved),
        kept_bytes=option.kept_bytes if segment is None else Bytes(0),
        kept_before_bytes=block.options[0].kept_bytes,
        offloaded_bytes=Bytes(option.offloaded_bytes),
        seconds=seconds,
        segment=segment,
    )
