"""A checkpoint plan instead of ``--checkpoint full``: made and proved by the planner, then evaluated like the rest."""

import gc
import os
from dataclasses import replace
from pathlib import Path

from memplan.errors import MemplanError
from memplan.hardware.profile import GpuProfile
from memplan.job.parallel import ALONE
from memplan.job.spec import JobSpec
from memplan.plan.batch.headroom import limit_of
from memplan.plan.checkpoint.ask import PlanOptions
from memplan.plan.recommend.evaluate import MICRO_BATCHES, Outcome, evaluate_here, not_traced
from memplan.plan.recommend.records import Candidate, Evaluated, Limits
from memplan.runtime.checkpoint.plan_file import write_plan

SOLVER_SECONDS = 10.0
"""For each call of the solver: a search has others to look at."""
TRACES = 10
"""What a plan takes, about: the options of a block, the plan, its corrections."""


def can_be_planned(spec: JobSpec) -> bool:
    """Does the planner take such a job? Block plans are for eager training on one GPU."""
    return spec.mode == "train" and spec.compile == "eager" and spec.parallel == ALONE and spec.checkpoint == "full"


def in_its_place(evaluated: Evaluated, file: Path) -> Candidate:
    """A configuration with full checkpointing, under a plan instead."""
    former = evaluated.candidate
    words = tuple(f"--checkpoint {file}" if text == "--checkpoint full" else text for text in former.changes)
    return replace(former, spec=replace(former.spec, checkpoint=str(file)), changes=words)


def budget_for(evaluated: Evaluated, profile: GpuProfile, limits: Limits) -> int:
    """Device peak that a plan may have: as far below the limit as the interval of the step needs."""
    limit = limit_of(profile, limits.utilization)
    return limit if limits.utilization else limit * evaluated.device_bytes // evaluated.high_bytes


def work_planned(candidate: Candidate, profile: GpuProfile, limits: Limits, *, budget: int) -> Outcome:
    """Plan a candidate whose ``checkpoint`` names the file to write, and evaluate it. Runs in a worker.

    Args:
        candidate: The way to run the job.
        profile: The device.
        limits: What it may take.
        budget: Device peak of the plan at most.
    """
    from memplan.plan.checkpoint.flow import plan_here

    os.dup2(2, 1)
    gc.disable()
    spec = replace(candidate.spec, checkpoint="none", grad_accum=min(candidate.spec.grad_accum, MICRO_BATCHES))
    options = PlanOptions(budget_bytes=budget, time_limit=SOLVER_SECONDS, pareto=False)
    try:
        answer = plan_here(spec, profile, options)
        if not answer.fits:
            return not_traced(candidate, "no checkpoint plan was found that fits")
        write_plan(answer.plan, Path(candidate.spec.checkpoint))
        return evaluate_here(candidate, profile, limits)
    except MemplanError as error:
        return not_traced(candidate, error.what)
    finally:
        gc.enable()
        gc.collect()
