"""Run one recipe and print its predicted peaks: ``python -m published.litgpt.child RECIPE-AS-JSON``."""

import json
import sys
import warnings
from dataclasses import asdict
from pathlib import Path

from memplan.hardware.catalog import load_profile
from memplan.job.source import ModelSource
from memplan.job.spec import FileTarget, JobSpec
from memplan.lifetime.build import build_lifetimes
from memplan.measure.played import play_on_device
from memplan.tracing.records import DeviceTraits
from memplan.tracing.run import trace_job
from published.case import Prediction
from published.litgpt.recipes import Recipe


def predict_here(recipe: Recipe) -> Prediction:
    """Trace a recipe and replay its allocations."""
    profile = load_profile(recipe.gpu)
    spec = JobSpec(target=FileTarget(path=Path(__file__)), mode="generate" if recipe.method == "generate" else "train")
    trace = trace_job(lambda: _source(recipe), spec, DeviceTraits.of(profile))
    memory = play_on_device(build_lifetimes(trace), profile).memory
    return Prediction(requested=memory.peak_requested, allocated=memory.peak_allocated, reserved=memory.peak_reserved)


def _source(recipe: Recipe) -> ModelSource:
    from published.litgpt import finetune, generate

    return generate.source(recipe) if recipe.method == "generate" else finetune.source(recipe)


def main(argument: str) -> None:
    """Print the answer as one line of JSON."""
    warnings.simplefilter("ignore")
    print(json.dumps(asdict(predict_here(Recipe(**json.loads(argument))))))


if __name__ == "__main__":
    main(sys.argv[1])
