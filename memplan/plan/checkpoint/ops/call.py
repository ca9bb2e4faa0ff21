"""The library call for a compiled step: a job and a budget to an op-level plan, made in a child process."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memplan.errors import EstimateError, MemplanError
from memplan.hardware.profile import GpuProfile
from memplan.job.isolate import run_isolated
from memplan.job.spec import JobSpec
from memplan.job.target import format_target
from memplan.job.usercode import explain
from memplan.lifetime.roofline import Roofline
from memplan.plan.checkpoint.schedule.answer import GraphAnswer, answer_of, budget_of
from memplan.plan.checkpoint.schedule.records import FeasibleSchedule, OptimalSchedule, Schedule
from memplan.runtime.partition.records import OrderPlan, OrderPromise
from memplan.units import Bytes
from memplan.versions import installed

if TYPE_CHECKING:
    from memplan.plan.checkpoint.ops.capture.capture import JointGraph
    from memplan.plan.checkpoint.ops.capture.problem import JointProblem

DEFAULT_TIMEOUT = 900.0
"""Seconds until a job that hangs is given up."""

BLOCK_LEVEL = "plan blocks of the eager model instead: --level block"

PEAK = (
    "the peak is that of one forward and backward: parameters, buffers, batch, activations and gradients; neither "
    "optimizer state, gradients of an earlier backward, the allocator's rounding nor the device's context are in it"
)
GRAPH = (
    "the graph is AOTAutograd's of model and loss, with the kernels of a CPU and without Inductor's decompositions and "
    "fusion"
)
MEANS = (PEAK, GRAPH)
"""Said under every answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpPlan:
    """The plan of a compiled step."""

    answer: GraphAnswer
    """For reports."""
    order: OrderPlan | None
    """For the partitioner; None where nothing fits."""


def plan_step(
    spec: JobSpec,
    profile: GpuProfile | None,
    budget: int | None,
    *,
    ratio: float | None = None,
    time_limit: float = 30.0,
    timeout: float = DEFAULT_TIMEOUT,
    progress: Callable[[str], None] | None = None,
) -> OpPlan:
    """Find the cheapest order of a step's ops within a budget. User code runs in a child process of its own.

    Args:
        spec: The job, of mode ``train``, eager and without checkpoints.
        profile: Whose rates say what an op costs; None: those of a nondescript device.
        budget: Bytes that one forward and backward may take: parameters, buffers, batch, activations, gradients; or
        ratio: the same as a share of what they take in the graph's own order.
        time_limit: Seconds for the search.
        timeout: Seconds after which the child is killed.
        progress: Told in a few words what happens now.

    Raises:
        UsageError: The target or an option is wrong.
        EstimateError: User code fails or hangs, or the step cannot be captured as one graph.
    """
    return run_isolated(_in_child, spec, profile, budget, ratio, time_limit, timeout=timeout, progress=progress)


def _in_child(
    spec: JobSpec, profile: GpuProfile | None, budget: int | None, ratio: float | None, time_limit: float
) -> OpPlan:
    from memplan.job.child import progress
    from memplan.plan.checkpoint.ops.capture.cost import roofline_seconds
    from memplan.plan.checkpoint.ops.capture.problem import problem_of
    from memplan.plan.checkpoint.ops.solve.plan import plan_joint
    from memplan.plan.checkpoint.schedule.figures import figures_of, unplanned

    started = time.perf_counter()
    progress("capturing the joint graph")
    joint, given = _captured(spec)
    rates, rated = _rates(spec, profile)
    problem = problem_of(joint, roofline_seconds(rates))
    before = figures_of(problem.graph, unplanned(problem.graph))
    limit = budget_of(before, budget, ratio)
    progress(f"ordering {len(problem.graph.names):,} ops")
    begun = time.perf_counter()
    result = plan_joint(problem, limit, time_limit=time_limit)
    seconds = time.perf_counter() - begun
    answer = replace(
        answer_of(problem.graph, before, result, target=format_target(spec.target), budget=limit, seconds=seconds),
        fixed_bytes=Bytes(problem.graph.fixed_bytes),
        trace_seconds=begun - started,
        torch_version=installed("torch"),
        assumptions=(*MEANS, *given, rated),
    )
    if not isinstance(result, OptimalSchedule | FeasibleSchedule):
        return OpPlan(answer=answer, order=None)
    return OpPlan(answer=answer, order=_order(joint, problem, result.schedule, answer))


def _rates(spec: JobSpec, profile: GpuProfile | None) -> tuple[Roofline, str]:
    from memplan.plan.checkpoint.ops.capture.cost import ASSUMED_RATES

    rates = ASSUMED_RATES if profile is None else Roofline.of(profile, spec.precision)
    device = "a nondescript device" if profile is None or rates.assumed else profile.name
    return rates, f"what an op costs is its time by the roofline of {device}"


def _captured(spec: JobSpec) -> "tuple[JointGraph, tuple[str, ...]]":
    """The joint graph of a target's model and loss, and what was taken for granted."""
    from memplan.plan.checkpoint.ops.capture.capture import joint_graph
    from memplan.tracing.inductor.capture import inside_capture
    from memplan.tracing.whole_step import whole_step
    from memplan.tracing.world import fake_world

    with fake_world():
        step, batch, given = whole_step(spec)
        try:
            with inside_capture():
                return joint_graph(step, (batch,)), given
        except Exception as error:
            told = error if isinstance(error, MemplanError) else explain(error, "the step")
            # What has no cause says itself what is wrong; a cause is what torch says of fake tensors.
            if error.__cause__ is None and told is error:
                raise
            what = f"the step cannot be captured as one graph: {told.what}"
            raise EstimateError(what, where=told.where, hint=BLOCK_LEVEL) from error


def _order(joint: "JointGraph", problem: "JointProblem", schedule: Schedule, answer: GraphAnswer) -> OrderPlan:
    from memplan.runtime.partition.structure import described, ops_of, structure

    order = problem.order(schedule)
    return OrderPlan(
        structure=structure(joint.module, joint.forward_outputs),
        ops=tuple(map(described, ops_of(joint.module))),
        forward=tuple(node.name for node in order.forward),
        backward=tuple(node.name for node in order.backward),
        promise=OrderPromise(
            budget_bytes=answer.budget_bytes,
            peak_before_bytes=answer.peak_before_bytes,
            peak_after_bytes=answer.peak_after_bytes or Bytes(0),
            overhead_ratio=answer.overhead_ratio or 0.0,
        ),
    )
