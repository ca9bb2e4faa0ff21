"""One cell of ``checkpoint_models``: a plan; and two real steps on the CPU under one way to checkpoint, peak and FLOPs.

The peak is what ``memplan validate`` measures: ``torch.profiler``'s events of PyTorch's CPU allocator from before the
model is built to the end, one thread. FLOPs are counted by ``torch.utils.flop_counter``,
recomputation included.
"""

import json
import random
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from checkpoint_policies import Tally, counter, policy

from memplan.hardware.catalog import load_profile
from memplan.job.load import load_source
from memplan.job.spec import JobSpec
from memplan.job.target import parse_target
from memplan.plan.checkpoint.answer_records import Method
from memplan.plan.checkpoint.ask import PlanOptions
from memplan.plan.checkpoint.flow import plan_here
from memplan.runtime.checkpoint.plan_file import write_plan
from memplan.trace.prepare import build_model, make_loop
from memplan.validate.cpu import CpuMeter
from memplan.validate.surroundings import RealDevice

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
    options = PlanOptions(budget_bytes=NO_LIMIT if budget is None else budget, method=method, pareto=False)
    answer = plan_here(spec_of(job), load_profile(job["device"]), options)
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
