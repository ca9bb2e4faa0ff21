"""What cut graphs take on real tensors: every storage counted from the op that makes it to the moment it dies."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from memplan.units import Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run of forward and backward."""

    peak_bytes: Bytes
    """Most bytes alive after some op, inputs included; kernels' own workspaces are not seen."""
    results: tuple[Any, ...]
    """Of forward, without what it saves."""
    gradients: tuple[Any, ...]
    """Of backward."""


def measure(
    forward: GraphModule,
    backward: GraphModule,
    inputs: Sequence[Any],
    tangents: Sequence[Any],
    num_forward_outputs: int,
) -> Measured:
    """Run both halves as AOTAutograd's runtime does: everything ends with its last use.

    Args:
        forward: Takes the inputs; returns results and saved values.
        backward: Takes saved values and tangents; returns gradients.
        inputs: Parameters, buffers and arguments; alive throughout.
        tangents: Of forward's results; alive throughout.
        num_forward_outputs: How many of forward's values are results; the caller keeps them.

    Returns:
        The peak, and what was computed.
    """
    with LiveBytes() as live:
        live.see([*inputs, *tangents])
        values = list(Interpreter(forward).boxed_run(list(inputs)))
        results, saved = tuple(values[:num_forward_outputs]), values[num_forward_outputs:]
        del values
        saved += tangents
        gradients = tuple(Interpreter(backward).boxed_run(saved))
    return Measured(peak_bytes=Bytes(live.peak), results=results, gradients=gradients)


@dataclass(slots=True, kw_only=True)
class _Counted:
    """Storages that may be alive."""

    references: dict[int, StorageWeakRef] = field(default_factory=dict)
    """By address of the storage's data."""
    sizes: dict[int, int] = field(default_factory=dict)
    """Bytes of each."""


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of all storages that ops make or read while it is on."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._counted = _Counted()

    def see(self, tensors: Sequence[Any]) -> None:
        """Count storages that are there already."""
        for tensor in tree_leaves(tensors):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                reference = _reference(storage)
                self._counted.references.setdefault(reference.cdata, reference)
                self._counted.sizes.setdefault(reference.cdata, storage.nbytes())

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an op and count what is alive after it."""
        # An address may be taken again by a storage that the op makes.
        self._sweep()
        result = func(*args, **(kwargs or {}))
        self.see([result])
        self.peak = max(self.peak, sum(self._counted.sizes.values()))
        return result

    def _sweep(self) -> None:
        counted = self._counted
        for key in [key for key, reference in counted.references.items() if _is_dead(reference)]:
            del counted.references[key], counted.sizes[key]


def _reference(storage: torch.UntypedStorage) -> StorageWeakRef:
    return StorageWeakRef(storage)


def _is_dead(reference: StorageWeakRef) -> bool:
    return bool(reference.expired())
