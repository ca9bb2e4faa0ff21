"""From a job and a budget to a proved plan, in one process: probe, solve, prove, correct. Runs in the child."""

import time
from collections.abc import Callable
from functools import partial

from memplan.errors import UsageError
from memplan.hardware.profile import GpuProfile
from memplan.job.load import load_source
from memplan.job.source import ModelSource
from memplan.job.spec import JobSpec
from memplan.lifetime.build import build_lifetimes
from memplan.lifetime.roofline import Roofline
from memplan.measure.played import play_on_device
from memplan.plan.checkpoint.blocks.answer.compose import compose_answer
from memplan.plan.checkpoint.blocks.answer.curve import anchored
from memplan.plan.checkpoint.blocks.answer.inputs import AnswerInputs
from memplan.plan.checkpoint.blocks.answer.records import CheckpointAnswer
from memplan.plan.checkpoint.blocks.as_plan import plan_for
from memplan.plan.checkpoint.blocks.probe.build import build_problem, position_stretches
from memplan.plan.checkpoint.blocks.probe.cut import cut_like
from memplan.plan.checkpoint.blocks.probe.figures import true_peaks
from memplan.plan.checkpoint.blocks.probe.read import read
from memplan.plan.checkpoint.blocks.probe.run import probe
from memplan.plan.checkpoint.blocks.probe.tracer import Tracer
from memplan.plan.checkpoint.blocks.probe.traffic import Probe
from memplan.plan.checkpoint.blocks.problem import BlockChoice, BlockProblem
from memplan.plan.checkpoint.blocks.prove.records import Proof, TracedPlan
from memplan.plan.checkpoint.blocks.prove.search import Solve, prove
from memplan.plan.checkpoint.blocks.request import BlockPlanRequest
from memplan.plan.checkpoint.blocks.solve.best import CombinedSolver
from memplan.plan.checkpoint.blocks.solve.copies import backlogs, bytes_back, seconds_back
from memplan.plan.checkpoint.blocks.solve.curve import CurvePoint, curve
from memplan.plan.checkpoint.blocks.solve.greedy import smallest
from memplan.plan.checkpoint.blocks.solve.methods import solver

MANY_BLOCKS = 64
"""With more of them the integer program takes longer than a table that finds as good a choice, up to rounding: it is
left to prove how good that is."""


def plan_here(
    spec: JobSpec,
    profile: GpuProfile,
    options: BlockPlanRequest,
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


def _check(spec: JobSpec, profile: GpuProfile, options: BlockPlanRequest) -> None:
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
        options: BlockPlanRequest,
        tracer: Tracer,
        progress: Callable[[str], None],
    ) -> None:
        self.spec, self.profile, self.options = spec, profile, options
        self.tracer, self.progress = tracer, progress
        self.roofline = Roofline.of(profile, spec.precision)
        self.budget = options.budget_bytes if options.budget_bytes is not None else profile.usable_bytes
        self._solver = solver(options.method)
        self._solve: Solve = partial(self._solver, time_limit=options.time_limit)
        self._rough = self._solver.roughly if isinstance(self._solver, CombinedSolver) else None
        self._solve_seconds = 0.0
        self._stretches: tuple[int, ...] = ()

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
        self._stretches = position_stretches(probing.probes)
        measuring = self.tracer.seconds
        base = probing.probes[0]
        unplanned = self._traced(problem, BlockChoice(options=base.options), base)
        proof = self._prove(problem, unplanned)
        points = self._curve(problem) if self.options.pareto else ()
        if proof.traced.device_bytes <= self.budget and points:
            # What the search found is larger: only traces tell how little would do. What has the fewest bytes alive may
            # yet leave more lost than the choice under which every block keeps least.
            for choice in (points[0].choice, smallest(problem)):
                proof = proof.with_traced(choice, self._tracing(problem, unplanned))
        return compose_answer(
            AnswerInputs(
                spec=self.spec,
                profile=self.profile,
                budget=self.budget,
                method=self.options.method,
                fingerprint=self.tracer.fingerprint,
                roofline=self.roofline,
                problem=problem,
                proof=proof,
                pareto=anchored(points, proof),
                dropped=base.reading.cut.dropped,
                notes=probing.notes,
                traces=self.tracer.traces,
                trace_seconds=measuring,
                solve_seconds=proof.solve_seconds + self._solve_seconds,
                prove_seconds=self.tracer.seconds - measuring,
            )
        )

    def _prove(self, problem: BlockProblem, unplanned: TracedPlan) -> Proof:
        self.progress("solving")
        rough = self._rough if len(problem.blocks) > MANY_BLOCKS else None
        return prove(
            problem,
            unplanned,
            self.budget,
            context_bytes=self.profile.context_bytes,
            solve=self._solve,
            trace=self._tracing(problem, unplanned),
            sketch=rough and partial(rough, time_limit=self.options.time_limit),
        )

    def _tracing(self, problem: BlockProblem, unplanned: TracedPlan) -> Callable[[BlockChoice], TracedPlan]:
        cut = unplanned.probe.reading.cut

        def trace(choice: BlockChoice) -> TracedPlan:
            self.progress("tracing the plan")
            found = self.tracer.trace(plan_for(problem, choice))
            reading = read(found, cut_like(found, cut))
            return self._traced(problem, choice, Probe(reading=reading, options=choice.options))

        return trace

    def _traced(self, problem: BlockProblem, choice: BlockChoice, found: Probe) -> TracedPlan:
        trace = found.reading.trace
        self.progress(f"replaying on {self.profile.name}")
        memory = play_on_device(build_lifetimes(trace), self.profile).memory
        step = trace.steps[-1]
        ops = trace.ops[step.first_op : step.end_op]
        peaks = true_peaks(found)
        still = [peaks[stretch] for stretch in self._stretches]
        # A trace moves tensors to the host and back as fast as the device's own memory is.
        back = seconds_back(bytes_back(problem, choice), problem.host_link_bandwidth)
        live = [sum(pair) for pair in zip(still, backlogs(problem, choice).outward, strict=True)]
        return TracedPlan(
            choice=choice,
            probe=found,
            live=tuple(live),
            device_bytes=memory.peak_reserved + self.profile.context_bytes + max(live) - max(still),
            seconds=self.roofline.total(ops) + sum(choice.stalls) + back,
            flops=sum(op.flops for op in ops),
        )

    def _curve(self, problem: BlockProblem) -> tuple[CurvePoint, ...]:
        self.progress("drawing the memory-time curve")
        started = time.perf_counter()
        points = curve(problem, self._rough or self._solver, time_limit=self.options.time_limit)
        self._solve_seconds += time.perf_counter() - started
        return points
