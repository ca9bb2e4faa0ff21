"""What torch's own ``FSDPMemTracker`` says of a run: ``python -m published.torchtitan.tracker ID``.

It runs the same steps on fake tensors with a fake process group, as its documentation shows. Without a GPU it tracks
the CPU; it counts tensors and knows no streams, segments or kernels' workspaces, so it has *active* alone.
"""

import json
import sys
import warnings
from dataclasses import asdict

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed import init_process_group
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from published.sharded.records import Peaks
from published.torchtitan.program import batch, checkpoint, model, optimizer, shard, train_step
from published.torchtitan.recipes import RECIPES, Recipe

STEPS = 2
"""The second is the first with optimizer states."""


def tracked(recipe: Recipe) -> Peaks:
    """Run the steps under the tracker."""
    init_process_group("fake", store=FakeStore(), rank=0, world_size=recipe.ranks)
    mesh = init_device_mesh("cpu", (recipe.ranks,))
    with FakeTensorMode(allow_non_fake_inputs=True):
        whole: nn.Module = model(recipe)
        checkpoint(recipe, whole)
        shard(whole, mesh)
        stepper = optimizer(whole.parameters())
        tracker = FSDPMemTracker(whole, stepper)
        inputs = batch(recipe)
        tracker.track_inputs(inputs)
        with tracker:
            for _ in range(STEPS):
                train_step(whole, stepper, inputs)
                tracker.reset_mod_stats()
        peak = tracker.get_tracker_snapshot("peak")
    (device,) = (each for each in peak if each.type == "cpu")
    return Peaks(allocated=peak[device]["Total"], reserved=0, torch=str(torch.__version__))


def main(identity: str) -> None:
    """Print the answer as one line of JSON."""
    warnings.simplefilter("ignore")
    print(json.dumps(asdict(tracked(RECIPES[identity]))))


if __name__ == "__main__":
    main(sys.argv[1])
