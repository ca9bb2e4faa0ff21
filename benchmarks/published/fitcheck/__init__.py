"""Peaks of QLoRA runs on a Tesla T4 that fitcheck publishes as its validation, run again on fake tensors.

The figures are data/measurements/t4-qlora-2026-09-01.json of github.com/Anassbzdd/fitcheck: ``max_memory_allocated`` in
whole MiB over the second of two equal steps of scripts/measure.py, written anew in ``program``. ``max_memory_reserved``
is published too, but rests on how the checkpoint was loaded and quantised, which does not run here.

What it needs: transformers, peft and bitsandbytes, installed; or, so that they are those of the run, in a folder that
``MEMPLAN_FITCHECK`` names (``pip install --target FOLDER transformers==5.0.0 peft==0.19.1 bitsandbytes==0.49.2``).
"""

import os
from functools import partial

from memplan.job.isolate import run_isolated
from published.case import Case, Excluded, Prediction
from published.fitcheck.runs import RUNS, Run

__all__ = ["cases"]

SOURCE = "fitcheck README"
MIB = 2**20
TIMEOUT = 1800.0
"""Seconds for one run."""
ASSUMPTIONS = ("the release of bitsandbytes, which is not stated",)


def cases() -> tuple[list[Case], list[Excluded]]:
    """All ten runs."""
    return [_case(identity, run) for identity, run in RUNS.items()], []


def _case(identity: str, run: Run) -> Case:
    return Case(
        id=identity,
        source=SOURCE,
        workload="qlora",
        metric="allocated",
        measured=run.allocated_mib * MIB,
        resolution=MIB // 2,
        predict=partial(predict, run),
        assumptions=ASSUMPTIONS,
    )


def predict(run: Run) -> Prediction:
    """Run a recipe on fake tensors, in a process of its own.

    Raises:
        EstimateError: It failed.
    """
    return run_isolated(_predict_here, run, os.environ.get("MEMPLAN_FITCHECK"), timeout=TIMEOUT)


def _predict_here(run: Run, packages: str | None) -> Prediction:
    import sys

    if packages:
        sys.path.insert(0, packages)
    from published.fitcheck.program import predict_here

    return predict_here(run)
