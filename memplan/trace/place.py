"""Put a model and its batches on the device: what ``.to("cuda")`` allocates, in its order."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch

from memplan.trace.recorder import Recorder


def place_model(recorder: Recorder, model: torch.nn.Module) -> None:
    """Enter parameters and buffers as allocations on the device, in the order in which ``Module.to`` moves them."""
    for prefix, module in _in_placement_order("", model):
        for name, parameter in module._parameters.items():
            if parameter is not None:
                recorder.adopt(parameter, role="parameter", name=prefix + name)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                recorder.adopt(buffer, role="buffer", name=prefix + name)


def _in_placement_order(prefix: str, module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    # Module._apply goes into the children first.
    for name, child in module.named_children():
        yield from _in_placement_order(f"{prefix}{name}.", child)
    yield prefix, module


def place_batch(recorder: Recorder, batch: Any) -> None:
    """Enter a batch's tensors as allocations on the device, in order."""
    for name, tensor in batch_tensors(batch):
        recorder.adopt(tensor, role="input", name=name)


def batch_tensors(batch: Any, name: str = "batch") -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors in a batch with their names, however nested in mappings, sequences and dataclasses."""
    if isinstance(batch, torch.Tensor):
        yield name, batch
    elif isinstance(batch, Mapping):
        for key, value in batch.items():
            yield from batch_tensors(value, f"{name}.{key}")
    elif isinstance(batch, list | tuple):
        for index, value in enumerate(batch):
            yield from batch_tensors(value, f"{name}.{index}")
    elif is_dataclass(batch):
        for each in fields(batch):
            yield from batch_tensors(getattr(batch, each.name), f"{name}.{each.name}")


def cast_floats(batch: Any, dtype: torch.dtype) -> Any:
    """The batch with its floating-point tensors cast, as a program with a half-precision model must do."""
    if isinstance(batch, torch.Tensor):
        return batch.to(dtype) if batch.is_floating_point() else batch
    if isinstance(batch, dict):
        return {key: cast_floats(value, dtype) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(cast_floats(value, dtype) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(cast_floats(value, dtype) for value in batch)
    if is_dataclass(batch):
        duplicate = copy.copy(batch)
        for each in fields(batch):
            # Also where the class is frozen.
            object.__setattr__(duplicate, each.name, cast_floats(getattr(batch, each.name), dtype))
        return duplicate
    return batch
