"""References of the tensors that a run meets: the node that made each, its storage, and what is known of it.

Tensors that no recorded op made come in here: parameters, buffers and batches as somebody says so, others where an op
first reads them.
"""

from collections.abc import Iterable

import torch

from memplan.seam.modes import get_unwrapped, is_functorch_wrapped_tensor
from memplan.tracing.learning import Learning
from memplan.tracing.ledger import Ledger
from memplan.tracing.records import Place, Role
from memplan.tracing.refs import (
    Aside,
    Ref,
    aside,
    is_wrapper,
    knowledge_of,
    nbytes_of,
    parts_of,
    pin,
    pinned,
    storage_of,
)
from memplan.tracing.sparse.parts import is_sparse
from memplan.tracing.step_graph import StepGraph
from memplan.units import StorageId


class References:
    """The references of one run's tensors.

    Args:
        ledger: Has their storages.
        learn: Keeps what is known of their elements.
    """

    def __init__(self, ledger: Ledger, learn: Learning) -> None:
        self.step_graph = StepGraph(self.of)
        """Has the nodes that made them."""
        self.default_place: Place = "device"
        """Where tensors go that nothing else places."""
        self._ledger = ledger
        self._learn = learn

    def of(self, tensor: torch.Tensor) -> Ref:
        """Return the reference of a tensor; a new one if it has none."""
        ref = pinned(tensor)
        if ref is None:
            return self._stray(tensor)
        # ``parameter.data = …`` exchanges the storage under a tensor, and no op tells of it.
        identity = self.storage(tensor)
        if identity is not None:
            ref.storage = identity
        return ref

    def beside(self, tensor: torch.Tensor) -> Aside:
        """Return what carries the knowledge of a tensor made in set-up, which has no node."""
        return aside(tensor, self.storage(tensor))

    def storage(self, tensor: torch.Tensor) -> StorageId | None:
        """Return the storage that a tensor lies in; None where none is known."""
        storage = storage_of(tensor)
        return None if storage is None else self._ledger.find(storage)

    def adopt(self, tensor: torch.Tensor, *, role: Role, name: str, moves: bool = True) -> None:
        """Enter a tensor made outside the recorded ops (parameter, buffer, input) as a placeholder on the device.

        Args:
            tensor: A fake tensor; one already adopted keeps its first name.
            role: What it is.
            name: Qualified name.
            moves: Does it go to the device now? Parts of a DTensor stay where they are: FSDP may keep them on the host.
        """
        tensor = _unwrapped(tensor)
        if pinned(tensor) is not None:
            return
        if is_wrapper(tensor):
            for part in parts_of(tensor):
                self.adopt(part, role=role, name=name, moves=moves and (is_sparse(tensor) or tensor.is_nested))
            if not is_sparse(tensor):
                return
        storage = storage_of(tensor)
        identity = None if storage is None else self._adopted(storage, role, name, moves=moves)
        ref = Ref(self.step_graph.placeholder(name), (), identity, nbytes_of(tensor))
        if role == "input" or identity is None:
            # What a batch was made of is known, and the indices of a sparse buffer; parameters change, and dense
            # buffers are rarely asked for values.
            self._learn.enter(ref, knowledge_of(tensor))
        pin(tensor, ref)

    def claim(self, tensor: torch.Tensor, *, role: Role, of: torch.Tensor) -> None:
        """Say what an op's result turned out to be, and which adopted tensor it belongs to."""
        if is_wrapper(tensor):
            for part in parts_of(tensor):
                self.claim(part, role=role, of=of)
            return
        while is_wrapper(of):
            of = parts_of(of)[0]
        identity, owner = self.storage(tensor), self.storage(of)
        if identity is not None and self._ledger.entries[identity].role == "intermediate":
            self._ledger.entries[identity].role = role
            self._ledger.entries[identity].name = "" if owner is None else self._ledger.entries[owner].name

    def forget(self, tensors: Iterable[torch.Tensor]) -> None:
        """Something outside of torch may have written these tensors: what was known of their elements is void."""
        for tensor in tensors:
            self._learn.forget(self.storage(tensor))

    def is_host(self, tensor: torch.Tensor) -> bool:
        """Does this tensor lie in host memory?"""
        tensor = _unwrapped(tensor)
        if is_wrapper(tensor):
            return all(self.is_host(part) for part in parts_of(tensor))
        identity = self.storage(tensor)
        return (self.default_place if identity is None else self._ledger.entries[identity].place) != "device"

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        """Does this tensor lie in page-locked host memory?"""
        identity = self.storage(tensor)
        return identity is not None and self._ledger.entries[identity].place == "pinned"

    def _adopted(self, storage: torch.UntypedStorage, role: Role, name: str, *, moves: bool) -> StorageId:
        identity = self._ledger.find(storage)
        if identity is None:
            return self._ledger.allocate(storage, place="device", role=role, name=name)
        entry = self._ledger.entries[identity]
        if moves and entry.place != "device":
            return self._ledger.move(storage, place="device", role=role, name=name)
        if not entry.name:
            entry.role, entry.name = role, name
        return identity

    def _stray(self, tensor: torch.Tensor) -> Ref:
        """A tensor that no recorded op made: born in set-up, or inside C++ as an alias of a known storage."""
        storage = storage_of(tensor)
        identity = self.storage(tensor)
        if identity is None and storage is not None:
            identity = self._ledger.allocate(storage, place=self.default_place, role="buffer")
        ref = Ref(self.step_graph.placeholder("stray"), (), identity, nbytes_of(tensor))
        self._learn.enter(ref, knowledge_of(tensor))
        pin(tensor, ref)
        return ref


def _unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """What a tensor of ``torch.func`` holds: inside ``vmap`` (transformers' masks, ensembles) they have no storage."""
    while is_functorch_wrapped_tensor(tensor):
        tensor = get_unwrapped(tensor)
    return tensor
