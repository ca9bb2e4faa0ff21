"""DTensors in a trace: what torch computes about them for its own sake is no part of the step."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from memplan.seam.distributed import OpSchema, ShardingPropagator
from memplan.seam.modes import DisableTorchFunction
from memplan.seam.patches.sharding import DRAW_SHARDS, MAKE_WRAPPER, PROPAGATE_SHAPES, RANDOM_TRACKER
from memplan.seam.replace import Replacement, attribute, replaced
from memplan.tracing.recorder import Recorder
from memplan.tracing.sharding.alike import shared_propagation

_CPU = torch.device("cpu")


@contextmanager
def following_local_tensors(recorder: Recorder) -> Iterator[None]:
    """Record what runs on the parts of DTensors on this rank, and nothing else of them."""
    wrappers = Replacement(MAKE_WRAPPER.path, _on_trace_device())
    # Between random ops torch carries the state of the GPU's generator, of which there is none, to the host and back.
    random = Replacement(DRAW_SHARDS.path, lambda *_, **__: nullcontext())
    table = (*_quiet_propagation(recorder), *shared_propagation(), wrappers, random, _random_state(recorder))
    with replaced(table):
        yield


def _random_state(recorder: Recorder) -> Replacement:
    """Let the first random op move the generator's state to the GPU as user code would: that is inside of an op."""
    make: Any = attribute(RANDOM_TRACKER.path)

    def make_as_user(*args: Any, **kwargs: Any) -> None:
        with recorder.user_code():
            make(*args, **kwargs)

    return Replacement(RANDOM_TRACKER.path, make_as_user)


def _quiet_propagation(recorder: Recorder) -> tuple[Replacement, ...]:
    """Sharding propagation runs every op once on fake tensors of the global size to learn its result's shape."""
    original: Any = attribute(PROPAGATE_SHAPES.path)

    def unrecorded(propagator: ShardingPropagator, schema: OpSchema, *args: Any, **kwargs: Any) -> Any:
        if torch.Tag.nondeterministic_seeded in schema.op.tags and schema.op._schema.name.endswith("_"):
            # Torch would draw on a GPU of its own fake world; what is overwritten keeps its shape.
            overwritten: Any = schema.args_schema[0]
            return overwritten.tensor_meta
        with recorder.muted(), DisableTorchFunction():
            return original(propagator, schema, *args, **kwargs)

    return (Replacement(PROPAGATE_SHAPES.path, unrecorded),)


def _on_trace_device() -> Any:
    """Wrappers made in Python take over the device that their tensor tells, which is a GPU that is not there."""
    original: Any = attribute(MAKE_WRAPPER.path)

    def make(*args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        if device is not None and torch.device(device).type == "cuda":
            kwargs["device"] = _CPU
        return original(*args, **kwargs)

    return staticmethod(make)
