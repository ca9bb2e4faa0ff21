"""From a proof to the answer: outcome, promise, figures of every block."""

from dataclasses import replace

from memplan.job.spec import JobSpec, ScriptTarget
from memplan.job.target import format_target
from memplan.measure.answer import optimizer_in_words
from memplan.measure.answer import options as step_options
from memplan.plan.checkpoint.blocks.answer.assumptions import assumptions
from memplan.plan.checkpoint.blocks.answer.certainty import certainty
from memplan.plan.checkpoint.blocks.answer.figures import plan_figures
from memplan.plan.checkpoint.blocks.answer.inputs import AnswerInputs
from memplan.plan.checkpoint.blocks.answer.records import CheckpointAnswer
from memplan.plan.checkpoint.blocks.as_plan import plan_for
from memplan.runtime.checkpoint.records import Promise
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
