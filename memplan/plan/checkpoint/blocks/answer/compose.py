"""From a proof to the answer: outcome, promise, figures of every block."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from memplan.job.spec import JobSpec, ScriptTarget
from memplan.job.target import format_target
from memplan.measure.answer import optimizer_in_words
from memplan.measure.answer import options as step_options
from memplan.plan.checkpoint.blocks.answer.inputs import AnswerInputs, certainty
from memplan.plan.checkpoint.blocks.answer.records import BlockRow, CheckpointAnswer
from memplan.plan.checkpoint.blocks.as_plan import plan_for
from memplan.plan.checkpoint.blocks.problem.memory import peak
from memplan.plan.checkpoint.blocks.problem.records import BlockChoice, BlockProblem, ModuleBlock, Option
from memplan.plan.checkpoint.blocks.problem.seconds import block_seconds
from memplan.runtime.checkpoint.records import Action, CheckpointPlan, Promise
from memplan.tracing.records import Trace
from memplan.units import Bytes
from memplan.versions import installed


def compose_answer(inputs: AnswerInputs) -> CheckpointAnswer:
    """Put the answer together."""
    spec, proof, before = inputs.spec, inputs.proof, inputs.unplanned
    trace, after = before.probe.reading.trace, proof.traced
    step = step_in_words(spec, trace)
    overhead = max(0.0, after.seconds - before.seconds) / (before.seconds or 1.0)
    promise = Promise(
        step=step,
        device=inputs.profile.name,
        budget_bytes=Bytes(inputs.budget),
        peak_before_bytes=Bytes(before.device_bytes),
        peak_after_bytes=Bytes(after.device_bytes),
        overhead_ratio=overhead,
    )
    plan = replace(plan_for(inputs.problem, after.choice), fingerprint=inputs.fingerprint, promise=promise)
    figures = plan_figures(inputs)
    certain = certainty(inputs, figures.extra_seconds)
    # The curve's lower end is the least peak; where nothing fits, the smallest plan has it.
    least = min(traced.device_bytes for traced in proof.found) if inputs.pareto or not inputs.fits else None
    return CheckpointAnswer(
        target=format_target(spec.target),
        device=inputs.profile.name,
        device_title=inputs.profile.title,
        step=step,
        options=step_options(spec, trace),
        outcome=certain.outcome,
        proved=certain.is_proved,
        result=proof.result,
        method="rotor" if after.choice.segments else inputs.method,
        plan=plan,
        model_place=inputs.model_place,
        budget_bytes=promise.budget_bytes,
        peak_before_bytes=promise.peak_before_bytes,
        peak_after_bytes=promise.peak_after_bytes,
        activation_before_bytes=figures.activation_before_bytes,
        overhead_ratio=overhead,
        flops_ratio=max(0, after.flops - before.flops) / max(1, before.flops),
        gap=certain.gap,
        bound_for=certain.bound_for,
        least_feasible_bytes=None if least is None else Bytes(least),
        binding=figures.binding,
        blocks=figures.blocks,
        pareto=inputs.pareto,
        rounds=proof.rounds,
        traces=inputs.traces,
        trace_seconds=inputs.trace_seconds,
        solve_seconds=inputs.solve_seconds,
        prove_seconds=inputs.prove_seconds,
        assumptions=(*trace.assumptions, *assumptions(inputs, plan)),
        not_modelled=trace.not_modelled,
        torch_version=installed("torch"),
        memplan_version=installed("memplan"),
    )


def step_in_words(spec: JobSpec, trace: Trace) -> str:
    """``batch 8 x seq 2048 · bf16 · adamw``; of a program its optimizer, since it decides the rest by itself."""
    if isinstance(spec.target, ScriptTarget):
        return optimizer_in_words(spec, trace)
    samples = f"batch {spec.batch_size}" if trace.seq_len is None else f"batch {spec.batch_size} x seq {trace.seq_len}"
    micro = [f"{spec.grad_accum} micro-batches"] if spec.grad_accum > 1 else []
    return " · ".join([samples, *micro, spec.precision, optimizer_in_words(spec, trace)])


def assumptions(inputs: AnswerInputs, plan: CheckpointPlan) -> Sequence[str]:
    """Return the sentences about what was taken for granted."""
    sentences = ["extra time is by roofline: each op at the device's peak arithmetic rate or memory bandwidth"]
    if inputs.roofline.assumed:
        sentences.append(
            f"{inputs.profile.name} states no rates: {inputs.roofline.flops / 1e12:g} TFLOP/s "
            f"and {inputs.roofline.bandwidth / 1e9:g} GB/s are assumed"
        )
    if any(row.action is Action.OFFLOAD for row in plan.blocks):
        sentences.append(
            "bytes on their way to the host and back count as on the device; a trace alone moves them in no time"
        )
    if inputs.dropped:
        sentences.append(
            f"not planned, since they do not run forward and backward in turn: {', '.join(inputs.dropped)}"
        )
    return [*sentences, *inputs.notes]


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
