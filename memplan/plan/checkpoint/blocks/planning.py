"""From a job and a budget to a proved plan, in one process: probe, solve, prove, answer. Runs in the child."""

import time
from collections.abc import Callable
from functools import partial

from memplan.hardware.profile import GpuProfile
from memplan.job.load import load_source
from memplan.job.source import ModelSource
from memplan.job.spec import JobSpec
from memplan.lifetime.roofline import Roofline, computing_precision
from memplan.measure.context import context_of
from memplan.plan.checkpoint.blocks.answer.compose import compose_answer
from memplan.plan.checkpoint.blocks.answer.curve import anchored
from memplan.plan.checkpoint.blocks.answer.inputs import AnswerInputs
from memplan.plan.checkpoint.blocks.answer.records import CheckpointAnswer, ParetoPoint
from memplan.plan.checkpoint.blocks.probe.build import build_problem
from memplan.plan.checkpoint.blocks.probe.run import probe
from memplan.plan.checkpoint.blocks.probe.tracer import Tracer
from memplan.plan.checkpoint.blocks.prove.search import prove, with_least
from memplan.plan.checkpoint.blocks.prove.trials import Trials
from memplan.plan.checkpoint.blocks.request import BlockPlanRequest, check_request
from memplan.plan.checkpoint.blocks.solve.curve import curve
from memplan.plan.checkpoint.blocks.solve.methods import rough_solver, sketching_solver, solver


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
    probe_seconds = tracer.seconds

    trials = Trials(
        tracer=tracer, profile=profile, roofline=roofline, probing=probing, problem=problem, progress=progress
    )
    unplanned = trials.unplanned()
    progress("solving")
    solve = solver(request.method)
    sketch = sketching_solver(solve, problem)
    proof = prove(
        problem,
        unplanned,
        budget,
        context_bytes=profile.context_bytes,
        solve=partial(solve, time_limit=request.time_limit),
        trace=trials.trace,
        sketch=None if sketch is None else partial(sketch, time_limit=request.time_limit),
    )
    solve_seconds = proof.solve_seconds
    pareto: tuple[ParetoPoint, ...] = ()
    if request.pareto:
        progress("drawing the memory-time curve")
        started = time.perf_counter()
        points = curve(problem, rough_solver(solve), time_limit=request.time_limit)
        solve_seconds += time.perf_counter() - started
        proof = with_least(proof, problem, points, budget, trials.trace)
        pareto = anchored(points, proof)
    return compose_answer(
        AnswerInputs(
            spec=spec,
            profile=profile,
            budget=budget,
            method=request.method,
            fingerprint=tracer.fingerprint,
            model_place=tracer.place,
            roofline=roofline,
            problem=problem,
            proof=proof,
            pareto=pareto,
            dropped=probing.probes[0].reading.cut.dropped,
            notes=probing.notes,
            traces=tracer.traces,
            trace_seconds=probe_seconds,
            solve_seconds=solve_seconds,
            prove_seconds=tracer.seconds - probe_seconds,
        )
    )
