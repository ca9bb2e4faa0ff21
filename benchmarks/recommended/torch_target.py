"""A target that trains a preset by the code that ``memplan emit --to torch`` wrote beside it."""

import json
from pathlib import Path
from types import SimpleNamespace

import torch
import train_setup
from torch.utils._pytree import tree_map

from memplan.job.presets import preset_source
from memplan.job.spec import JobSpec, PresetTarget

SETTINGS = json.loads((Path(__file__).parent / "settings.json").read_text())
SOURCE = preset_source(
    SETTINGS["preset"], spec=JobSpec(target=PresetTarget(name=SETTINGS["preset"]), seq_len=SETTINGS["seq_len"])
)
KEPT = {}
"""What a loop of one's own has as local variables: batch and output live until the next ones."""


def model():
    """The preset, set up by the emitted code."""
    return train_setup.set_up(SOURCE.model())


def optimizer(parameters):
    """The emitted one."""
    found = list(parameters)
    return train_setup.make_optimizer(SimpleNamespace(parameters=lambda: found), 1e-4)


def _made_in_the_loop(batch_size):
    """Nothing: the loop makes its own."""
    KEPT["size"] = batch_size
    return torch.empty(0)


def _loss(model, batch):
    """Move a batch, run the model, and keep both."""
    KEPT.pop("batch", None)
    KEPT["batch"] = tree_map(lambda value: value.to("cuda") if isinstance(value, torch.Tensor) else value, batch)
    KEPT["output"] = model(**KEPT["batch"])
    found = SOURCE.loss(KEPT["output"], KEPT["batch"]) if SOURCE.loss else KEPT["output"].loss
    if SETTINGS["grad_accum"] == 1:
        KEPT["loss"] = found  # train() holds it until the next step, but here it ends after each.
    return found


def _train_step(model, optimizer, _batch):
    """One step of the emitted loop."""
    micro_batches = (SOURCE.batch(KEPT["size"], SETTINGS["seq_len"]) for _ in range(SETTINGS["grad_accum"]))
    train_setup.train(model, optimizer, [micro_batches], _loss)


batch, loss, train_step = _made_in_the_loop, _loss, _train_step
