"""Put a model and its batches on the device: what ``.to("cuda")`` allocates, in its order."""

import copy
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch

from memplan.tracing.bitsandbytes import quantise, statistics
from memplan.tracing.recorder import Recorder


def place_model(recorder: Recorder, model: torch.nn.Module) -> None:
    """Enter parameters and buffers as allocations on the device, in the order in which ``Module.to`` moves them."""
    if recorder.device.kind == "cuda":
        quantise(model)
    for prefix, module in in_placement_order("", model):
        for name, parameter in module._parameters.items():
            if parameter is not None:
                recorder.references.adopt(parameter, role="parameter", name=prefix + name)
                for part, tensor in statistics(parameter):
                    recorder.references.adopt(tensor, role="parameter", name=f"{prefix}{name}.{part}")
        for name, buffer in module._buffers.items():
            if buffer is not None:
                recorder.references.adopt(buffer, role="buffer", name=prefix + name)


def in_placement_order(prefix: str, module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Modules with their names' prefixes, in the order of ``Module._apply``, which goes into the children first."""
    for name, child in module.named_children():
        yield from in_placement_order(prefix if name == "_fsdp_wrapped_module" else f"{prefix}{name}.", child)
    yield prefix, module


def place_batch(recorder: Recorder, batch: Any) -> None:
    """Enter a batch's tensors as allocations on the device, in order."""
    for name, tensor in batch_tensors(batch):
        recorder.references.adopt(tensor, role="input", name=name)


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
    return map_batch(batch, lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)


def map_batch(batch: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The batch with every tensor changed, however nested in mappings, sequences and dataclasses."""
    if isinstance(batch, torch.Tensor):
        return change(batch)
    if isinstance(batch, Mapping):
        changed = {key: map_batch(value, change) for key, value in batch.items()}
        return changed if type(batch) is dict or not isinstance(batch, MutableMapping) else _refilled(batch, changed)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_batch(value, change) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(map_batch(value, change) for value in batch)
    if is_dataclass(batch) and not isinstance(batch, type):
        duplicate = copy.copy(batch)
        for each in fields(batch):
            # Also where the class is frozen.
            object.__setattr__(duplicate, each.name, map_batch(getattr(batch, each.name), change))
        return duplicate
    return batch


def _refilled(batch: MutableMapping[Any, Any], items: Mapping[Any, Any]) -> MutableMapping[Any, Any]:
    """A mapping of the same class (a tokenizer's ``BatchEncoding``) with other values."""
    duplicate = copy.copy(batch)
    # A shallow copy of a ``UserDict`` has its own dictionary, one of another class may not: the keys are the same.
    for key, value in items.items():
        duplicate[key] = value
    return duplicate
