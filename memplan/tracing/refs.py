"""What the recorder pins on every tensor it meets, and the few facts that it reads off a tensor."""

from typing import TYPE_CHECKING

import torch

from memplan.seam.fake import FakeTensor
from memplan.seam.modes import is_traceable_wrapper_subclass
from memplan.tracing.knowledge import NOTHING, Knowledge
from memplan.tracing.nested import Path
from memplan.tracing.sparse.parts import is_sparse, storages_of
from memplan.units import StorageId

if TYPE_CHECKING:
    from memplan.tracing.call_graph import CallNode
    from memplan.tracing.records import Op

PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, FakeTensor})
"""Types of tensors that hold their own elements."""


class Ref:
    """The node that made a tensor, its storage, its size and what is known of its elements."""

    __slots__ = ("knowledge", "nbytes", "node", "path", "storage")

    def __init__(self, node: "CallNode[Op]", path: Path, storage: StorageId | None, nbytes: int) -> None:
        self.node = node
        self.path = path
        """Where it is among the node's results, until someone reads it; empty if the node is the tensor."""
        self.storage = storage
        """None for layouts without a storage."""
        self.nbytes = nbytes
        """Bytes of its elements; a view may have fewer than its storage."""
        self.knowledge = NOTHING
        """What is known of its elements."""


class Aside:
    """What is known of the elements of a tensor made in set-up, which has no node."""

    __slots__ = ("knowledge", "storage")

    def __init__(self, storage: StorageId | None) -> None:
        self.knowledge = NOTHING
        """What is known of its elements."""
        self.storage = storage
        """None for layouts without a storage."""


def pin(tensor: torch.Tensor, ref: Ref) -> None:
    """Attach a reference; it goes when the tensor goes."""
    tensor._memplan = ref  # type: ignore[attr-defined]


def pinned(tensor: torch.Tensor) -> Ref | None:
    """The reference attached to a tensor."""
    return tensor.__dict__.get("_memplan")


def knowledge_of(tensor: torch.Tensor) -> Knowledge:
    """What is known of a tensor's elements."""
    carrier = pinned(tensor) or tensor.__dict__.get("_memplan_aside")
    return NOTHING if carrier is None else carrier.knowledge


def aside(tensor: torch.Tensor, storage: StorageId | None) -> Aside:
    """The carrier of knowledge of a tensor made in set-up; a new one if it has none."""
    carrier: Aside | None = tensor.__dict__.get("_memplan_aside")
    if carrier is None:
        carrier = Aside(storage)
        tensor._memplan_aside = carrier  # type: ignore[attr-defined]
    return carrier


def is_wrapper(tensor: torch.Tensor) -> bool:
    """Is a tensor made of others, as a DTensor or a sparse tensor is?"""
    if type(tensor) in PLAIN:
        return is_sparse(tensor)
    return is_traceable_wrapper_subclass(tensor)


def parts_of(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The tensors that another is made of: of a DTensor the one of this rank, of a sparse tensor indices and values."""
    if is_sparse(tensor):
        return storages_of(tensor)
    held = (getattr(tensor, name) for name in tensor.__tensor_flatten__()[0])  # type: ignore[attr-defined]
    return [each for each in held if isinstance(each, torch.Tensor)]


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """The storage of a tensor; None for layouts without one (sparse), whose parts are tensors of their own."""
    return tensor.untyped_storage() if tensor.layout is torch.strided else None


def is_borrowed(tensor: torch.Tensor) -> bool:
    """Is this a real tensor in memory that torch did not allocate (NumPy's)? Such storages cannot grow."""
    return type(tensor) is torch.Tensor and not tensor.untyped_storage().resizable()


def is_on_meta(tensor: torch.Tensor) -> bool:
    """Is a tensor, or does a fake one stand for, one of the meta device, which has no memory?"""
    return (tensor.fake_device.type if isinstance(tensor, FakeTensor) else tensor.device.type) == "meta"


def nbytes_of(tensor: torch.Tensor) -> int:
    """Bytes of a tensor's elements; of a sparse tensor those of its parts."""
    if is_sparse(tensor):
        return sum(nbytes_of(part) for part in storages_of(tensor))
    return 0 if tensor.layout is not torch.strided else tensor.numel() * tensor.element_size()


def is_dense(tensor: torch.Tensor) -> bool:
    """Do the elements lie without gap or overlap, whatever the order of the dimensions?

    ``compute_non_overlapping_and_dense`` of c10/core/Contiguity.h; what Python has of it is renamed between releases.
    """
    if tensor.layout is not torch.strided:
        return False
    step = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride != step:
            return False
        step *= max(size, 1)
    return True
