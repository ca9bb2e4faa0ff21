"""``DistributedDataParallel`` around a model that lies on the device."""

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from memplan.job.spec import JobSpec
from memplan.tracing.place import place_model
from memplan.tracing.sharding import world


def replicate(model: nn.Module, spec: JobSpec, mesh: DeviceMesh) -> nn.Module:
    """Wrap a model in DDP, after moving it to the device as scripts do."""
    here = world.current()
    place_model(here.recorder, model)
    group = mesh["dp_replicate"].get_group()
    devices = [torch.cuda.current_device()] if mesh.device_type == "cuda" else None
    here.assume("DistributedDataParallel has its default buckets of 25 MiB, and gradients of their own beside them")
    if spec.grad_accum > 1:
        here.assume("gradients are reduced after the last micro-batch alone (no_sync), as accelerate does")
    return DistributedDataParallel(model, device_ids=devices, process_group=group)
