"""A target that shares a preset by the code that ``memplan emit --to fsdp2`` wrote beside it."""

import json
from pathlib import Path
from types import SimpleNamespace

import fsdp2

from memplan.job.presets import preset_source
from memplan.job.spec import JobSpec, PresetTarget
from memplan.trace.sharding.materialise import on_meta

SETTINGS = json.loads((Path(__file__).parent / "settings.json").read_text())
SOURCE = preset_source(
    SETTINGS["preset"], spec=JobSpec(target=PresetTarget(name=SETTINGS["preset"]), seq_len=SETTINGS["seq_len"])
)
model = SOURCE.model
if SOURCE.loss is not None:
    loss = SOURCE.loss


def batch(batch_size):
    """One micro-batch."""
    return SOURCE.batch(batch_size, SETTINGS["seq_len"])


def parallelize(model, _mesh):
    """As a large model is set up: sharded without memory, which each rank then takes for its own share alone."""
    with on_meta(model, "cpu" if SETTINGS["offload"] else "cuda"):
        fsdp2.shard(model)


def optimizer(parameters):
    """The emitted one."""
    found = list(parameters)
    return fsdp2.make_optimizer(SimpleNamespace(parameters=lambda: found), 1e-4)
