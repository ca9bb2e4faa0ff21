"""One cell of ``checkpoint_models``: a plan; and two real steps on the CPU under one way to checkpoint, peak and FLOPs.

The peak is what ``memplan validate`` measures: ``torch.profiler``'s events of PyTorch's CPU allocator from before the
model is built to the end, one thread. FLOPs are counted in a third step by ``torch.utils.flop_counter``, recomputation included.
"""

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from checkpoint_policies import policy
from memplan.hardware.catalog import load_profile
from memplan.job.load import load_source
from memplan.job.spec import FileTarget, JobSpec
from memplan.plan.checkpoint.answer_records import Method
from memplan.plan.checkpoint.ask import PlanOptions
from memplan.plan.checkpoint.flow import plan_here
from memplan.runtime.checkpoint.plan_file import write_plan
from memplan.trace.prepare import build_model, make_loop
from memplan.validate.cpu import CpuMeter
from memplan.validate.surroundings import RealDevice


def _attention(query: Sequence[int], key: Sequence[int], *_: Any, **__: Any) -> int:
    batch, heads, length, width = query
    return 4 * batch * heads * length * key[2] * width


def _attention_backward(_: Any, query: Sequence[int], key: Sequence[int], *__: Any, **___: Any) -> int:
    return _attention(query, key) * 5 // 2


NO_LIMIT = 2**60
_ATTENTION = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}
"""The counter knows attention on CUDA alone; products are counted as it counts them there."""


def spec_of(job: dict[str, Any], checkpoint: str = "none") -> JobSpec:
    """The job in memplan's words: fp32, plain SGD, so that the step has no memory beside weights, gradients and
    activations.

    Args:
        job: ``path``, ``batch_size`` and ``seq_len``.
        checkpoint: As ``JobSpec.checkpoint``.
    """
    return JobSpec(
        target=FileTarget(path=Path(job["path"])),
        batch_size=job["batch_size"],
        seq_len=job["seq_len"],
        optimizer="sgd",
        checkpoint=checkpoint,
    )


def planned(
    job: dict[str, Any], out: Path | None = None, *, budget: int | None = None, method: Method = "ilp"
) -> dict[str, Any]:
    """Plan it for a budget; without one, only say what the step takes as it is.

    Args:
        job: As ``spec_of``.
        out: Where the plan goes.
        budget: Peak in bytes at most.
        method: Solver.

    Returns:
        Fields of a row of ``checkpoint_models``.
    """
    torch.set_num_threads(1)
    options = PlanOptions(budget_bytes=NO_LIMIT if budget is None else budget, method=method, pareto=False)
    answer = plan_here(spec_of(job), load_profile("cpu"), options)
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
    """Run two steps for real.

    Args:
        job: As ``spec_of``; ``checkpoint``, a plan file or ``full``; and ``policy``, of ``checkpoint_policies``.

    Returns:
        ``measured`` in bytes, ``flops`` of one step, ``step_seconds`` of the last of the two.
    """
    torch.manual_seed(0)
    random.seed(0)
    torch.set_num_threads(1)
    spec, surroundings = spec_of(job, job["checkpoint"]), RealDevice(torch.device("cpu"))
    meter = CpuMeter()
    meter.start()
    source = load_source(spec)
    model = policy(job["policy"])(build_model(source, spec, surroundings))
    loop = make_loop(source, model, spec, surroundings)
    for _ in range(2):
        started = time.perf_counter()
        with meter.step():
            next(loop)
        seconds = time.perf_counter() - started
    peak = meter.finish().peaks.requested
    # Dynamo compiles nothing under a dispatch mode, but runs there what it has compiled.
    with FlopCounterMode(display=False, custom_mapping=_ATTENTION) as counter:
        next(loop)
    return {"measured": peak, "flops": counter.get_total_flops(), "step_seconds": seconds}
