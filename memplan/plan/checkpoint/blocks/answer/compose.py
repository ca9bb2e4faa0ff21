"""From a proof to the answer: outcome, promise, figures of every block."""

from collections.abc import Sequence
from dataclasses import replace

from memplan.job.spec import JobSpec
from memplan.job.target import format_target
from memplan.measure.answer import optimizer_in_words
from memplan.measure.answer import options as step_options
from memplan.plan.checkpoint.blocks.answer.certainty import bound_for, gap, is_proved, outcome
from memplan.plan.checkpoint.blocks.answer.inputs import AnswerInputs
from memplan.plan.checkpoint.blocks.answer.records import BlockRow, CheckpointAnswer
from memplan.plan.checkpoint.blocks.as_plan import plan_for
from memplan.plan.checkpoint.blocks.problem.memory import block_seconds, peak
from memplan.plan.checkpoint.blocks.problem.records import BlockChoice, BlockProblem, ModuleBlock, Option
from memplan.runtime.checkpoint.records import Action, CheckpointPlan, Promise
from memplan.tracing.records import Trace
from memplan.units import Bytes
from memplan.versions import installed


def compose_answer(planned: AnswerInputs) -> CheckpointAnswer:
    """Put the answer together."""
    spec, proof, before = planned.spec, planned.proof, planned.unplanned
    trace = before.probe.reading.trace
    after, problem = proof.traced, planned.problem
    step_text = step_in_words(spec, trace)
    overhead = max(0.0, after.seconds - before.seconds) / (before.seconds or 1.0)
    return CheckpointAnswer(
        target=format_target(spec.target),
        device=planned.profile.name,
        device_title=planned.profile.title,
        step=step_text,
        options=step_options(spec, trace),
        outcome=outcome(planned),
        proved=is_proved(planned),
        result=proof.result,
        method="rotor" if after.choice.segments else planned.method,
        plan=_with_promise(planned, step_text, overhead),
        budget_bytes=Bytes(planned.budget),
        peak_before_bytes=Bytes(before.device_bytes),
        peak_after_bytes=Bytes(after.device_bytes),
        activation_before_bytes=Bytes(_activations(problem, before.choice)),
        overhead_ratio=overhead,
        flops_ratio=max(0, after.flops - before.flops) / max(1, before.flops),
        gap=gap(planned),
        bound_for=bound_for(planned),
        least_feasible_bytes=_least(planned),
        binding=problem.positions[peak(proof.problem, after.choice)[1]].name,
        blocks=tuple(_rows(problem, after.choice)),
        pareto=planned.pareto,
        rounds=proof.rounds,
        traces=planned.traces,
        trace_seconds=planned.trace_seconds,
        solve_seconds=planned.solve_seconds,
        prove_seconds=planned.prove_seconds,
        assumptions=(*trace.assumptions, *_assumptions(planned)),
        not_modelled=trace.not_modelled,
        torch_version=installed("torch"),
        memplan_version=installed("memplan"),
    )


def _least(planned: AnswerInputs) -> Bytes | None:
    """The least peak traced; the curve's lower end is, and where nothing fits, the smallest plan."""
    is_known = planned.pareto or not planned.fits
    return Bytes(min(each.device_bytes for each in planned.proof.found)) if is_known else None


def step_in_words(spec: JobSpec, trace: Trace) -> str:
    """``batch 8 x seq 2048 · bf16 · adamw``."""
    samples = f"batch {spec.batch_size}" if trace.seq_len is None else f"batch {spec.batch_size} x seq {trace.seq_len}"
    micro = [f"{spec.grad_accum} micro-batches"] if spec.grad_accum > 1 else []
    return " · ".join([samples, *micro, spec.precision, optimizer_in_words(spec, trace)])


def _with_promise(planned: AnswerInputs, step: str, overhead: float) -> CheckpointPlan:
    plan = plan_for(planned.problem, planned.proof.traced.choice)
    promise = Promise(
        step=step,
        device=planned.profile.name,
        budget_bytes=Bytes(planned.budget),
        peak_before_bytes=Bytes(planned.unplanned.device_bytes),
        peak_after_bytes=Bytes(planned.proof.traced.device_bytes),
        overhead_ratio=overhead,
    )
    return replace(plan, fingerprint=planned.fingerprint, promise=promise)


def _activations(problem: BlockProblem, choice: BlockChoice) -> int:
    """Bytes at the peak that are no fixed ones."""
    most, at = peak(problem, choice)
    return most - problem.positions[at].fixed_bytes


def _rows(problem: BlockProblem, choice: BlockChoice) -> list[BlockRow]:
    inside: dict[int, int] = {}
    for index, (first, end) in enumerate(choice.segments):
        inside.update(dict.fromkeys(range(first, end), index))
    return [
        _row(block, block.options[option], seconds, inside.get(index))
        for index, (block, option, seconds) in enumerate(
            zip(problem.blocks, choice.options, block_seconds(problem, choice), strict=True)
        )
    ]


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


def _assumptions(planned: AnswerInputs) -> Sequence[str]:
    said = ["extra time is by roofline: each op at the device's peak arithmetic rate or memory bandwidth"]
    if planned.roofline.assumed:
        said.append(
            f"{planned.profile.name} states no rates: {planned.roofline.flops / 1e12:g} TFLOP/s "
            f"and {planned.roofline.bandwidth / 1e9:g} GB/s are assumed"
        )
    if any(row.action is Action.OFFLOAD for row in plan_for(planned.problem, planned.proof.traced.choice).blocks):
        said.append(
            "bytes on their way to the host and back count as on the device; a trace alone moves them in no time"
        )
    if planned.dropped:
        said.append(f"not planned, since they do not run forward and backward in turn: {', '.join(planned.dropped)}")
    return [*said, *planned.notes]
