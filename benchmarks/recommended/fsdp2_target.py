"""A target that shares a preset by the code that ``memplan emit --to fsdp2`` wrote beside it."""

import json
from pathlib import Path
from types import SimpleNamespace

import fsdp2
import torch

from memplan.job.presets import preset_source
from memplan.job.spec import JobSpec, PresetTarget

SETTINGS = json.loads((Path(__file__).parent / "settings.json").read_text())
SOURCE = preset_source(
    SETTINGS["preset"], spec=JobSpec(target=PresetTarget(name=SETTINGS["preset"]), seq_len=SETTINGS["seq_len"])
)
if SOURCE.loss is not None:
    loss = SOURCE.loss


def model():
    """The preset without memory, as large models are built."""
    with torch.device("meta"):
        return SOURCE.model()


def batch(batch_size):
    """One micro-batch."""
    return SOURCE.batch(batch_size, SETTINGS["seq_len"])


def parallelize(model, _mesh):
    """Shared as the emitted code says; each rank then takes memory for its own share alone."""
    shared = fsdp2.shard(model)
    return shared.to_empty(device="cpu" if SETTINGS["offload"] else "cuda")


def optimizer(parameters):
    """The emitted one."""
    found = list(parameters)
    return fsdp2.make_optimizer(SimpleNamespace(parameters=lambda: found), 1e-4)
