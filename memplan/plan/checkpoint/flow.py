"""From a job and a budget to a proved plan, in one process: probe, solve, prove, correct. Runs in the child."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from memplan.errors import UsageError
from memplan.estimate.local import measure
from memplan.hardware.profile import GpuProfile
from memplan.job.load import load_source
from memplan.job.source import ModelSource
from memplan.job.spec import JobSpec
from memplan.lifetime.build import build_lifetimes
from memplan.lifetime.roofline import Roofline
from memplan.plan.checkpoint.answer import Planned, compose_answer
from memplan.plan.checkpoint.answer_records import CheckpointAnswer, ParetoPoint
from memplan.plan.checkpoint.ask import PlanOptions
from memplan.plan.checkpoint.block.copies import backlogs
from memplan.plan.checkpoint.block.pareto import CurvePoint, curve
from memplan.plan.checkpoint.block.records import BlockProblem, Choice, Infeasible
from memplan.plan.checkpoint.block.solvers import solver
from memplan.plan.checkpoint.plans import plan_for
from memplan.plan.checkpoint.probe.figures import true_peaks
from memplan.plan.checkpoint.probe.interfaces import Probe
from memplan.plan.checkpoint.probe.positions import cut_like
from memplan.plan.checkpoint.probe.probe import Probing, probe
from memplan.plan.checkpoint.probe.problem import build_problem, position_stretches
from memplan.plan.checkpoint.probe.tensors import read
from memplan.plan.checkpoint.probe.tracer import Tracer
from memplan.plan.checkpoint.prove import Proof, Solve, Traced, prove
from memplan.units import Bytes


def plan_here(
    spec: JobSpec,
    profile: GpuProfile,
    options: PlanOptions,
    *,
    load: Callable[[], ModelSource] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> CheckpointAnswer:
    """Find the cheapest plan whose traced device peak meets a budget.

    Args:
        spec: The job.
        profile: The device.
        options: What is asked.
        load: Loads the target; None loads what the job names.
        progress: Told what happens now.

    Raises:
        MemplanError: As ``plan_checkpoints``.
    """
    _check(spec, profile, options)
    tracer = Tracer(load or partial(load_source, spec), spec, profile, patterns=options.blocks, progress=progress)
    return _Planning(spec, profile, options, tracer, progress).answer()


def _check(spec: JobSpec, profile: GpuProfile, options: PlanOptions) -> None:
    if spec.mode != "train":
        raise UsageError("only training keeps activations for a backward", where="--mode")
    if spec.checkpoint != "none":
        raise UsageError("the job already has a plan", where="--checkpoint", hint="leave --checkpoint away")
    if spec.compile != "eager":
        raise UsageError("block plans are for eager models", where="--compile")
    if options.offload and not profile.host_link_bandwidth:
        raise UsageError(f"{profile.name} has no link to a host to offload to", where="--offload")
    if options.budget_bytes is None and not profile.usable_bytes:
        raise UsageError(f"{profile.name} has no fixed amount of memory", where="--budget", hint="give --budget")


class _Planning:
    """One job, device and budget on the way to an answer."""

    def __init__(
        self,
        spec: JobSpec,
        profile: GpuProfile,
        options: PlanOptions,
        tracer: Tracer,
        progress: Callable[[str], None],
    ) -> None:
        self.spec, self.profile, self.options = spec, profile, options
        self.tracer, self.progress = tracer, progress
        self.roofline = Roofline.of(profile, spec.precision)
        self.budget = options.budget_bytes if options.budget_bytes is not None else profile.usable_bytes
        self._solver = solver(options.method)
        self._solve: Solve = partial(self._solver, time_limit=options.time_limit)
        self._solve_seconds = 0.0

    def answer(self) -> CheckpointAnswer:
        """Everything in turn."""
        trace = self.tracer.trace()
        probing = probe(self.tracer, trace, self.roofline, offload=self.options.offload, progress=self.progress)
        problem = build_problem(
            probing.probes,
            probing.kinds,
            probing.menus,
            self.roofline,
            host_link_bandwidth=self.profile.host_link_bandwidth if self.options.offload else 0.0,
        )
        measuring = self.tracer.seconds
        base = probing.probes[0]
        unplanned = self._traced(Choice(options=base.options), base)
        proof = self._prove(probing, problem, unplanned)
        proving = self.tracer.seconds - measuring
        lost = proof.traced.lost_bytes
        points = self._curve(problem)
        return compose_answer(
            Planned(
                spec=self.spec,
                profile=self.profile,
                budget=self.budget,
                method=self.options.method,
                fingerprint=self.tracer.fingerprint,
                roofline=self.roofline,
                problem=problem,
                unplanned=unplanned,
                proof=proof,
                least_bytes=points[0].peak_bytes + lost if points else None,
                pareto=tuple(
                    ParetoPoint(
                        peak_bytes=Bytes(point.peak_bytes + lost), overhead_ratio=point.seconds / problem.step_seconds
                    )
                    for point in points
                    if self.options.pareto
                ),
                dropped=base.reading.cut.dropped,
                notes=probing.notes,
                traces=self.tracer.traces,
                trace_seconds=measuring,
                solve_seconds=proof.solve_seconds + self._solve_seconds,
                prove_seconds=proving,
            )
        )

    def _prove(self, probing: Probing, problem: BlockProblem, unplanned: Traced) -> Proof:
        stretches = position_stretches(probing.probes)

        def positions(found: Probe) -> list[int]:
            peaks = true_peaks(found)
            return [peaks[stretch] for stretch in stretches]

        def trace(choice: Choice) -> Traced:
            self.progress("tracing the plan")
            found = self.tracer.trace(plan_for(problem, choice))
            reading = read(found, cut_like(found, probing.probes[0].reading.cut))
            traced = self._traced(choice, Probe(reading=reading, options=choice.options))
            under_way = bytes_under_way(problem, choice, positions(traced.probe))
            return replace(traced, device_bytes=traced.device_bytes + under_way)

        self.progress("solving")
        return prove(problem, unplanned, self.budget, solve=self._solve, trace=trace, positions=positions)

    def _traced(self, choice: Choice, found: Probe) -> Traced:
        trace = found.reading.trace
        self.progress(f"replaying on {self.profile.name}")
        memory = measure(build_lifetimes(trace), self.profile).memory
        step = trace.steps[-1]
        ops = trace.ops[step.first_op : step.end_op]
        return Traced(
            choice=choice,
            probe=found,
            device_bytes=memory.peak_reserved + self.profile.context_bytes,
            seconds=self.roofline.total(ops) + sum(choice.stalls),
            flops=sum(op.flops for op in ops),
        )

    def _curve(self, problem: BlockProblem) -> tuple[CurvePoint, ...]:
        """The memory-time curve; without one asked for, its first point alone."""
        self.progress("looking for the least memory")
        started = time.perf_counter()
        points: tuple[CurvePoint, ...] = ()
        if self.options.pareto:
            points = curve(problem, self._solver, time_limit=self.options.time_limit)
        else:
            result = self._solve(problem, Bytes(0))
            if isinstance(result, Infeasible):
                points = (CurvePoint(peak_bytes=result.least_bytes, seconds=0.0, choice=result.choice),)
        self._solve_seconds += time.perf_counter() - started
        return points


def bytes_under_way(problem: BlockProblem, choice: Choice, peaks: Sequence[int]) -> int:
    """By how much copies to the host and back raise a traced peak: a trace moves tensors in no time."""
    copies = backlogs(problem, choice)
    moving = [sum(pair) for pair in zip(copies.outward, copies.inward, strict=True)]
    return max(map(sum, zip(peaks, moving, strict=True))) - max(peaks)
