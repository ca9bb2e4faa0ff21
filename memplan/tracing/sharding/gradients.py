"""What storages are that the engine and the placing of the model do not make: reduced shards, gathered parameters."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from memplan.seam.distributed import FSDPParam
from memplan.seam.patches.sharding import GATHERED_PARAMETER
from memplan.seam.replace import Replacement, attribute, replaced
from memplan.tracing.recorder import Recorder


@contextmanager
def claiming_gradients(recorder: Recorder) -> Iterator[None]:
    """Tell the recorder of every gradient that an optimizer is about to read."""

    def claim(optimizer: torch.optim.Optimizer, *_: object) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    recorder.claim(parameter.grad, role="gradient", of=parameter)

    handle = register_optimizer_step_pre_hook(claim)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def claiming_gathered(recorder: Recorder) -> Iterator[None]:
    """Tell the recorder that what FSDP2 gathers a parameter into is that parameter, too."""
    prepare: Callable[..., None] = attribute(GATHERED_PARAMETER.path)

    def prepare_and_claim(sharded: FSDPParam, *args: Any, **kwargs: Any) -> None:
        prepare(sharded, *args, **kwargs)
        for gathered in sharded.all_gather_outputs:
            recorder.claim(gathered, role="parameter", of=sharded.sharded_param)

    with replaced((Replacement(GATHERED_PARAMETER.path, prepare_and_claim),)):
        yield
