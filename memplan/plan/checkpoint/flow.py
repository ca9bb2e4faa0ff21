"""From a job and a budget to a proved plan, in one process: probe, solve, prove, correct. Runs in the child."""

import time
from collections.abc import Callable
from functools import partial
from importlib import import_module

from memplan.errors import UsageError
from memplan.estimate.local import measure
from memplan.hardware.profile import GpuProfile
from memplan.job.load import load_source
from memplan.job.source import ModelSource
from memplan.job.spec import JobSpec
from memplan.lifetime.build import build_lifetimes
from memplan.lifetime.roofline import Roofline
from memplan.plan.checkpoint.answer import Planned, compose_answer
from memplan.plan.checkpoint.answer_records import CheckpointAnswer, Method, ParetoPoint
from memplan.plan.checkpoint.ask import PlanOptions
from memplan.plan.checkpoint.figures import true_peaks
from memplan.plan.checkpoint.interfaces import Probe
from memplan.plan.checkpoint.memory import extra_seconds, peak
from memplan.plan.checkpoint.plans import plan_for
from memplan.plan.checkpoint.probe import Probing, aligned, probe
from memplan.plan.checkpoint.problem import build_problem, position_stretches
from memplan.plan.checkpoint.prove import Proof, Solve, Traced, chosen, prove
from memplan.plan.checkpoint.records import BlockProblem, Choice, Infeasible, Result
from memplan.plan.checkpoint.tracer import Tracer
from memplan.units import Bytes

CURVE_POINTS = 12
"""Budgets, evenly spaced, for which the memory-time curve is drawn."""


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
        self._solve: Solve = partial(solver(options.method), time_limit=options.time_limit)
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
        least = self._least(problem)
        curve = self._curve(problem, unplanned, lost, least) if self.options.pareto else ()
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
                least_bytes=None if least is None else least + lost,
                pareto=curve,
                dropped=base.reading.cut.dropped,
                traces=self.tracer.traces,
                trace_seconds=measuring,
                solve_seconds=proof.solve_seconds + self._solve_seconds,
                prove_seconds=proving,
            )
        )

    def _prove(self, probing: Probing, problem: BlockProblem, unplanned: Traced) -> Proof:
        stretches = position_stretches(probing.probes)

        def trace(choice: Choice) -> Traced:
            self.progress("tracing the plan")
            reading = aligned(self.tracer.trace(plan_for(problem, choice)), probing.probes[0].reading)
            return self._traced(choice, Probe(reading=reading, options=choice.options))

        def positions(found: Probe) -> list[int]:
            peaks = true_peaks(found)
            return [peaks[stretch] for stretch in stretches]

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

    def _least(self, problem: BlockProblem) -> int | None:
        """The least live bytes of any choice: what the solver says of no memory at all."""
        result = self._timed(problem, 0)
        return result.least_bytes if isinstance(result, Infeasible) else None

    def _curve(self, problem: BlockProblem, unplanned: Traced, lost: int, least: int | None) -> tuple[ParetoPoint, ...]:
        """The memory-time curve, from the least memory to that of the unplanned step."""
        most = peak(problem, unplanned.choice)[0]
        start = most if least is None else least
        points: dict[int, ParetoPoint] = {}
        for part in range(CURVE_POINTS):
            self.progress(f"drawing the memory-time curve, point {part + 1} of {CURVE_POINTS}")
            choice = chosen(self._timed(problem, start + (most - start) * part // (CURVE_POINTS - 1)))
            if choice is not None:
                nbytes = peak(problem, choice)[0] + lost
                seconds = extra_seconds(problem, choice)
                points[nbytes] = ParetoPoint(peak_bytes=Bytes(nbytes), overhead_ratio=seconds / problem.step_seconds)
        return tuple(points[nbytes] for nbytes in sorted(points))

    def _timed(self, problem: BlockProblem, live: int) -> Result:
        started = time.perf_counter()
        result = self._solve(problem, Bytes(live))
        self._solve_seconds += time.perf_counter() - started
        return result


def solver(method: Method) -> Callable[..., Result]:
    """The solver of a name."""
    solve: Callable[..., Result] = import_module(f"memplan.plan.checkpoint.{method}").solve
    return solve
