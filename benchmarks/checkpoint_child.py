"""One cell of ``checkpoint_models``: a plan; and two real steps on the CPU under one way to checkpoint, peak and FLOPs.

The peak is what ``memplan validate`` measures: ``torch.profiler``'s events of PyTorch's CPU allocator from before the
model is built to the end, one thread. FLOPs are counted by ``torch.utils.flop_counter``,
recomputation included.
"""

import json
import random
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from checkpoint_policies import Tally, counter, policy

from memplan.hardware.catalog import load_profile
from memplan.job.load import load_source
from memplan.job.spec import JobSpec
from memplan.job.target import parse_target
from memplan.plan.checkpoint.blocks import planning
from memplan.plan.checkpoint.blocks.probe.tracer import Tracer
from memplan.plan.checkpoint.blocks.request import BlockPlanRequest, Method
from memplan.plan.checkpoint.blocks.solve.methods import CombinedSolver, solver
from memplan.runtime.checkpoint.plan_file import write_plan
from memplan.runtime.checkpoint.records import CheckpointPlan
from memplan.tracing.prepare import build_model, make_loop
from memplan.tracing.real_device import RealDevice
from memplan.tracing.records import Trace
from memplan.validate.run import CpuMeter

NO_LIMIT = 2**60
STEPS = 2
"""Measured; with the second one, all that a step leaves behind is there."""


def spec_of(job: dict[str, Any], checkpoint: str = "none") -> JobSpec:
    """The job in memplan's words. Its optimizer is plain SGD: beside the activations there are weights and gradients.

    Args:
        job: ``target``, ``batch_size``, ``seq_len`` and ``precision``.
        checkpoint: As ``JobSpec.checkpoint``.
    """
    return JobSpec(
        target=parse_target(job["target"]),
        batch_size=job["batch_size"],
        seq_len=job["seq_len"],
        precision=job["precision"],
        optimizer="sgd",
        checkpoint=checkpoint,
    )


@dataclass(slots=True)
class SolverClock:
    """Processor time in block solvers: what their wall time would be on a machine that does nothing else."""

    seconds: float = 0.0

    def solver(self, method: Method) -> Callable[..., Any]:
        """As ``block.solvers.solver``."""
        solve = solver(method)
        return _TimedBest(self.timed) if isinstance(solve, CombinedSolver) else self.timed(solve)

    def timed(self, solve: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, its time being counted."""

        def timed(*arguments: Any, **keywords: Any) -> Any:
            started, known = time.process_time(), self.seconds
            try:
                return solve(*arguments, **keywords)
            finally:
                # What it asks of itself is part of its time.
                self.seconds = known + time.process_time() - started

        return timed


class _TimedBest(CombinedSolver):
    def __init__(self, timed: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        super().__init__()
        self.solve, self.roughly = timed(super().__call__), timed(super().roughly)  # type: ignore[method-assign]

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.solve(*arguments, **keywords)


class RememberingTracer(Tracer):
    """Every budget begins with the same traces: here they are made once, and counted for each."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._known: dict[CheckpointPlan | None, tuple[Trace, float]] = {}

    def trace(self, plan: CheckpointPlan | None = None) -> Trace:
        """As ``Tracer.trace``."""
        if plan not in self._known:
            before = self.seconds
            self._known[plan] = super().trace(plan), self.seconds - before
        else:
            self.traces += 1
            self.seconds += self._known[plan][1]
        return self._known[plan][0]


_TRACERS: dict[str, RememberingTracer] = {}
"""Job → its tracer; forks inherit it."""


def _tracer(key: str, *arguments: Any, **keywords: Any) -> RememberingTracer:
    """In place of ``Tracer``."""
    tracer = _TRACERS.setdefault(key, RememberingTracer(*arguments, **keywords))
    tracer.traces, tracer.seconds = 0, 0.0
    return tracer


def planned(
    job: dict[str, Any], out: Path | None = None, *, budget: int | None = None, method: Method = "ilp"
) -> dict[str, Any]:
    """Plan it for a budget; without one, only say what the step takes as it is.

    Args:
        job: As ``spec_of``, and ``device``.
        out: Where the plan goes.
        budget: Peak in bytes at most.
        method: Solver.

    Returns:
        Fields of a row of ``checkpoint_models``.
    """
    torch.set_num_threads(1)
    options = BlockPlanRequest(
        budget_bytes=NO_LIMIT if budget is None else budget,
        method=method,
        # The least budget comes with the curve; the row without a budget shows it.
        pareto=budget is None,
    )
    clock = SolverClock()
    with (
        patch.object(planning, "solver", clock.solver),
        patch.object(planning, "Tracer", partial(_tracer, json.dumps(job))),
    ):
        answer = planning.plan_here(spec_of(job), load_profile(job["device"]), options)
    if out is not None:
        write_plan(answer.plan, out)
    return {
        "result": answer.outcome,
        "budget": budget,
        "before": answer.peak_before_bytes,
        "activations": answer.activation_before_bytes,
        "least": answer.least_feasible_bytes,
        "promise": answer.peak_after_bytes,
        "promised_extra": answer.overhead_ratio,
        "gap": answer.gap,
        "traces": answer.traces,
        "trace_seconds": answer.trace_seconds,
        "solve_seconds": answer.solve_seconds,
        "solve_cpu_seconds": clock.seconds,
        "prove_seconds": answer.prove_seconds,
    }


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Run a few steps for real.

    Args:
        job: As ``spec_of``; ``checkpoint``, a plan file or ``full``; and ``policy``, of ``checkpoint_policies``.

    Returns:
        ``measured`` in bytes, ``flops`` of one step, ``step_seconds`` of the last.
    """
    torch.manual_seed(0)
    random.seed(0)
    torch.set_num_threads(1)
    spec, surroundings = spec_of(job, job["checkpoint"]), RealDevice(torch.device("cpu"))
    meter = CpuMeter()
    meter.start()
    source = load_source(spec)
    model, tally = build_model(source, spec, surroundings), Tally()
    policy(job["policy"])(model, tally)
    loop = make_loop(source, model, spec, surroundings)
    for _ in range(STEPS):
        started = time.perf_counter()
        with meter.step():
            next(loop)
        seconds = time.perf_counter() - started
    peak = meter.finish().peaks.requested
    tally.is_on = True
    # Dynamo runs nothing compiled under a dispatch mode.
    with nullcontext() if job["policy"].startswith("compiled") else counter() as counting:
        next(loop)
    flops = tally.flops if counting is None else counting.get_total_flops()
    return {"measured": peak, "flops": flops, "step_seconds": seconds}


if __name__ == "__main__":
    print(json.dumps(measure(json.loads(sys.argv[1]))))
