"""From a job and a budget to a proved plan and its curve: probe, solve, prove, answer. Runs in the child."""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from memplan.hardware.profile import GpuProfile
from memplan.job.load import load_source
from memplan.job.source import ModelSource
from memplan.job.spec import JobSpec
from memplan.lifetime.roofline import Roofline, computing_precision
from memplan.measure.context import context_of
from memplan.plan.checkpoint.blocks.answer.compose import compose_answer
from memplan.plan.checkpoint.blocks.answer.inputs import AnswerInputs
from memplan.plan.checkpoint.blocks.answer.records import CheckpointAnswer, ParetoPoint
from memplan.plan.checkpoint.blocks.probe.build import build_problem
from memplan.plan.checkpoint.blocks.probe.run import probe
from memplan.plan.checkpoint.blocks.probe.tracer import Tracer
from memplan.plan.checkpoint.blocks.prove.records import Proof, TracedPlan
from memplan.plan.checkpoint.blocks.prove.search import prove, with_least
from memplan.plan.checkpoint.blocks.prove.trials import Trials
from memplan.plan.checkpoint.blocks.request import BlockPlanRequest, check_request
from memplan.plan.checkpoint.blocks.solve.curve import CurvePoint, curve
from memplan.plan.checkpoint.blocks.solve.methods import rough_solver, sketching_solver, solver
from memplan.runtime.checkpoint.mismatch import PlanMismatch
from memplan.units import Bytes


def plan_here(
    spec: JobSpec,
    profile: GpuProfile,
    request: BlockPlanRequest,
    *,
    load: Callable[[], ModelSource] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> CheckpointAnswer:
    """Find the cheapest plan whose traced device peak meets a budget.

    Without ``load`` the target that the job names is loaded.

    Raises:
        MemplanError: As ``plan_checkpoints``.
    """
    check_request(spec, profile, request)
    budget = request.budget(profile)
    tracer = Tracer(load or partial(load_source, spec), spec, profile, patterns=request.blocks, progress=progress)
    trace = tracer.trace()
    roofline = Roofline.of(profile, computing_precision(spec, trace))
    profile = context_of(profile, trace)
    probing = probe(tracer, trace, roofline, offload=request.offload, progress=progress)
    link = profile.host_link_bandwidth if request.offload else 0.0
    problem = build_problem(probing.probes, probing.kinds, probing.menus, roofline, host_link_bandwidth=link)
    if not tracer.called_alike(probing.probes[0].reading.cut.modules):
        # A segment calls each of its blocks as the first one was called.
        problem = replace(problem, chain=False)
    probe_seconds = tracer.seconds

    trials = Trials(
        tracer=tracer, profile=profile, roofline=roofline, probing=probing, problem=problem, progress=progress
    )
    try:
        searched = _search(trials, request, budget)
    except PlanMismatch as error:
        if not problem.chain:
            raise
        # What stands between blocks (a checkpoint of the model's own, a look at a shape) shows in no op.
        trials = replace(trials, problem=replace(problem, chain=False))
        searched = _search(trials, request, budget)
        probing = replace(probing, notes=(*probing.notes, f"no blocks run again as one: {error.what}"))
    return compose_answer(
        AnswerInputs(
            spec=spec,
            profile=profile,
            budget=budget,
            method=request.method,
            fingerprint=tracer.fingerprint,
            model_place=tracer.place,
            roofline=roofline,
            problem=trials.problem,
            proof=searched.proof,
            pareto=searched.pareto,
            dropped=probing.probes[0].reading.cut.dropped,
            notes=probing.notes,
            traces=tracer.traces,
            trace_seconds=probe_seconds,
            solve_seconds=searched.solve_seconds,
            prove_seconds=tracer.seconds - probe_seconds,
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Searched:
    """The proof and the curve of a problem."""

    proof: Proof
    pareto: tuple[ParetoPoint, ...]
    solve_seconds: float


def _search(trials: Trials, request: BlockPlanRequest, budget: int) -> _Searched:
    """Solve and prove, and draw the curve where it is asked for."""
    problem, unplanned = trials.problem, trials.unplanned()
    trials.progress("solving")
    solve = solver(request.method)
    sketch = sketching_solver(solve, problem)
    proof = prove(
        problem,
        unplanned,
        budget,
        context_bytes=trials.profile.context_bytes,
        solve=partial(solve, time_limit=request.time_limit),
        trace=trials.trace,
        sketch=None if sketch is None else partial(sketch, time_limit=request.time_limit),
    )
    solve_seconds = proof.solve_seconds
    pareto: tuple[ParetoPoint, ...] = ()
    if request.pareto:
        trials.progress("drawing the memory-time curve")
        started = time.perf_counter()
        points = curve(problem, rough_solver(solve), time_limit=request.time_limit)
        solve_seconds += time.perf_counter() - started
        proof = with_least(proof, problem, points, budget, trials.trace)
        pareto = anchored(points, proof)
    return _Searched(proof=proof, pareto=pareto, solve_seconds=solve_seconds)


def anchored(points: Sequence[CurvePoint], proof: Proof) -> tuple[ParetoPoint, ...]:
    """Put a curve of live bytes and the traced plans on one axis of device peaks.

    What was traced stands where it was traced. What the allocator loses on another choice is interpolated between the
    traced ones. Where that choice then would beat the proved plan in both, or be smaller than the smallest that was
    traced, it is left out.

    Returns:
        Points with rising peaks and falling times; the proved plan is one of them.
    """
    if not points:
        return ()
    unplanned, seen = proof.found[0], {traced.choice for traced in proof.found}
    step = unplanned.seconds or 1.0

    def point(traced: TracedPlan) -> ParetoPoint:
        extra = max(0.0, traced.seconds - unplanned.seconds)
        return ParetoPoint(peak_bytes=Bytes(traced.device_bytes), overhead_ratio=extra / step)

    def estimate(choice: CurvePoint) -> ParetoPoint:
        nbytes = choice.peak_bytes + _between(lost, choice.peak_bytes)
        return ParetoPoint(peak_bytes=Bytes(nbytes), overhead_ratio=choice.seconds / step)

    lost = sorted({max(traced.live): traced.lost_bytes for traced in proof.found}.items())
    candidates = [*map(point, proof.found), *(estimate(each) for each in points if each.choice not in seen)]
    plan, least = point(proof.traced), min(traced.device_bytes for traced in proof.found)
    others = [each for each in candidates if each.peak_bytes >= least and _trades(each, plan)]
    return tuple(_front([plan, *others]))


def _between(known: Sequence[tuple[int, int]], at: int) -> int:
    """The value at a place by linear interpolation between known ones (place, value), sorted; level at the ends."""
    after = bisect_left(known, (at,))
    if after in {0, len(known)}:
        return known[min(after, len(known) - 1)][1]
    (left, low), (right, high) = known[after - 1 : after + 1]
    return low + (high - low) * (at - left) // (right - left)


def _trades(point: ParetoPoint, other: ParetoPoint) -> bool:
    """Is it better in one and worse in the other?"""
    return (point.peak_bytes - other.peak_bytes) * (point.overhead_ratio - other.overhead_ratio) < 0


def _front(points: Iterable[ParetoPoint]) -> Iterator[ParetoPoint]:
    """Points that no other beats, by peak."""
    least: float | None = None
    for point in sorted(points, key=lambda each: (each.peak_bytes, each.overhead_ratio)):
        if least is None or point.overhead_ratio < least:
            least = point.overhead_ratio
            yield point
