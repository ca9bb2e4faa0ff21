"""A checkpoint plan instead of ``--checkpoint full``: made and proved by the planner, then evaluated like the rest."""

import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from memplan.hardware.profile import GpuProfile
from memplan.measure.collector import collector_off
from memplan.plan.batch.headroom import limit_of
from memplan.plan.checkpoint.blocks.request import BlockPlanRequest
from memplan.plan.recommend.evaluate import Evaluation, attempt, evaluate_here, not_traced, work
from memplan.plan.recommend.programs import in_force
from memplan.plan.recommend.records import Candidate, Evaluated, StepLimits
from memplan.runtime.checkpoint.plan_file import write_plan
from memplan.tracing.turns import MICRO_BATCHES

SOLVER_SECONDS = 10.0
"""For each call of the solver: a search has others to look at."""
TRACES = 10
"""What a plan takes, about: the options of a block, the plan, its corrections."""
NO_FILE = Path("PLAN")
"""Stands for the file of a plan that is not made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planning:
    """A plan that is to be made, if any."""

    candidates: tuple[Candidate, ...] = ()
    """The way to run the job under it."""
    file: str = ""
    """Where it is written."""
    budget: int = 0
    """Device peak that it may have."""
    folder: Path | None = None
    """Where traces of the others are found and kept; the plan's own file is written by the process that traces it."""

    def work(self, candidate: Candidate, profile: GpuProfile, limits: StepLimits) -> Evaluation:
        """Evaluate a candidate in a worker; make its plan before, if it is the one to be planned."""
        if not self.file or candidate.spec.checkpoint != self.file:
            return work(candidate, profile, limits, folder=self.folder)
        return _work_planned(candidate, profile, limits, budget=self.budget)


def can_be_planned(evaluated: Evaluated) -> bool:
    """Does the planner take such a job? Block plans are for eager training; it traces one pipeline stage alone."""
    spec = evaluated.candidate.spec
    eager = spec.mode == "train" and spec.compile == "eager"
    return eager and spec.parallel.pipeline == 1 and spec.checkpoint == "full"


def in_its_place(evaluated: Evaluated, file: Path = NO_FILE) -> Candidate:
    """A configuration with full checkpointing, under a plan instead."""
    former, words = evaluated.candidate, f"--checkpoint {file}"
    spec = replace(former.spec, checkpoint=str(file))
    if "checkpoint" not in former.groups:
        return Candidate(spec=spec, changes=(*former.changes, words), groups=(*former.groups, "checkpoint"))
    pairs = zip(former.changes, former.groups, strict=True)
    return replace(former, spec=spec, changes=tuple(words if group == "checkpoint" else text for text, group in pairs))


def budget_for(evaluated: Evaluated, profile: GpuProfile, limits: StepLimits) -> int:
    """Device peak that a plan may have: as far below the limit as the interval of the step needs."""
    limit = limit_of(profile, limits.utilization)
    return limit if limits.utilization else limit * evaluated.device_bytes // evaluated.high_bytes


def _work_planned(candidate: Candidate, profile: GpuProfile, limits: StepLimits, *, budget: int) -> Evaluation:
    """Plan a candidate whose ``checkpoint`` names the file to write, and evaluate it."""
    os.dup2(2, 1)
    with collector_off():
        return attempt(candidate, partial(_planned, candidate, profile, limits, budget))


def _planned(candidate: Candidate, profile: GpuProfile, limits: StepLimits, budget: int) -> Evaluation:
    from memplan.plan.checkpoint.blocks.planning import plan_here

    micro_batches = min(candidate.spec.grad_accum, MICRO_BATCHES)
    spec = in_force(replace(candidate.spec, checkpoint="none", grad_accum=micro_batches))
    answer = plan_here(spec, profile, BlockPlanRequest(budget_bytes=budget, time_limit=SOLVER_SECONDS, pareto=False))
    if not answer.fits:
        return not_traced(candidate, "no checkpoint plan was found that fits")
    write_plan(answer.plan, Path(candidate.spec.checkpoint))
    return evaluate_here(candidate, profile, limits)
