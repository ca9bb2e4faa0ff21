"""Trace one run and print its predicted peaks: ``python -m published.torchtitan.child ID``.

With ``--other``, its other reading (``recipes.READINGS``).
"""

import json
import sys
import warnings
from dataclasses import asdict

from memplan.hardware.catalog import load_profile
from memplan.lifetime.build import build_lifetimes
from memplan.measure.played import play_on_device
from memplan.replay.policy import AllocatorPolicy
from memplan.tracing.records import DeviceTraits
from memplan.tracing.run import trace_job
from published.sharded.records import Peaks
from published.torchtitan.program import job, source
from published.torchtitan.recipes import READINGS, RECIPES, Recipe


def predicted(recipe: Recipe) -> Peaks:
    """Trace rank 0 and replay its streams in both modes of the allocator."""
    import torch

    profile = load_profile("h100-80g")
    lifetimes = build_lifetimes(trace_job(lambda: source(recipe), job(recipe), DeviceTraits.of(profile)))
    native = play_on_device(lifetimes, profile).memory
    expandable = play_on_device(lifetimes, profile, AllocatorPolicy(expandable_segments=True)).memory
    return Peaks(
        allocated=native.peak_allocated,
        reserved=native.peak_reserved,
        expandable=expandable.peak_reserved,
        torch=str(torch.__version__),
    )


def main(identity: str, *other: str) -> None:
    """Print the answer as one line of JSON."""
    warnings.simplefilter("ignore")
    print(json.dumps(asdict(predicted((READINGS if other else RECIPES)[identity]))))


if __name__ == "__main__":
    main(*sys.argv[1:])
