"""What the recorder pins on every tensor it meets, and the few facts that it reads off a tensor."""

import torch
import torch.fx

from memplan.trace.values import NOTHING, Knowledge
from memplan.units import StorageId


class Ref:
    """The node that made a tensor, its storage, its size and what is known of its elements."""

    __slots__ = ("knowledge", "nbytes", "node", "position", "storage")

    def __init__(self, node: torch.fx.Node, position: int | None, storage: StorageId | None, nbytes: int) -> None:
        self.node = node
        self.position = position
        """Index in the node's results, until someone reads it; None if the node is the tensor."""
        self.storage = storage
        """None for layouts without a storage."""
        self.nbytes = nbytes
        """Bytes of its elements; a view may have fewer than its storage."""
        self.knowledge = NOTHING
        """What is known of its elements."""


def pin(tensor: torch.Tensor, ref: Ref) -> None:
    """Attach a reference; it goes when the tensor goes."""
    tensor._memplan = ref  # type: ignore[attr-defined]


def pinned(tensor: torch.Tensor) -> Ref | None:
    """The reference attached to a tensor."""
    return tensor.__dict__.get("_memplan")


def knowledge_of(tensor: torch.Tensor) -> Knowledge:
    """What is known of a tensor's elements."""
    ref = pinned(tensor)
    return NOTHING if ref is None else ref.knowledge


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """The storage of a tensor; None for layouts without one (sparse), whose parts are tensors of their own."""
    return tensor.untyped_storage() if tensor.layout is torch.strided else None


def nbytes_of(tensor: torch.Tensor) -> int:
    """Bytes of a tensor's elements."""
    return 0 if tensor.layout is not torch.strided else tensor.numel() * tensor.element_size()
