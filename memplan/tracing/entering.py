"""The results of ops: each is given its reference, and each new storage its allocation."""

from typing import Any

import torch

from memplan.tracing.cuda.kernel_results import RESULT_ORDER
from memplan.tracing.ledger import Ledger
from memplan.tracing.nested import Path, leaves_of
from memplan.tracing.op_log import OpLog
from memplan.tracing.placing import Placing
from memplan.tracing.references import References
from memplan.tracing.refs import Ref, is_on_meta, nbytes_of, pin, pinned, storage_of
from memplan.tracing.running import Running
from memplan.tracing.scratch.player import ScratchPlayer
from memplan.tracing.scratch.rules import Script
from memplan.units import StorageId


class EnteredResults:
    """Enters results in the ledger.

    Args:
        ledger: Takes the allocations.
        references: Of the run's tensors.
        placing: Says where they lie.
        player: Plays what kernels take between two results.
        log: Is told their types.
    """

    def __init__(
        self, ledger: Ledger, references: References, placing: Placing, player: ScratchPlayer, log: OpLog
    ) -> None:
        self._ledger, self._references, self._placing = ledger, references, placing
        self._player, self._log = player, log

    def enter(self, running: Running, result: Any, script: Script) -> list[StorageId]:
        """Enter an op's new storages; ids of all that it wrote."""
        leaves = leaves_of(result)
        order = RESULT_ORDER.get(running.operator.name)
        if order is not None:
            leaves = [leaves[position] for position in order]
        writes = []
        for path, tensor in leaves:
            self._player.play(script.between.get(path, ()))
            writes.append(self._enter_one(running, tensor, path))
        if running.operator.is_view:
            return []
        writes += [
            self._references.of(tensor).storage for tensor in running.operator.written(running.args, running.kwargs)
        ]
        return [identity for identity in writes if identity is not None]

    def _enter_one(self, running: Running, tensor: torch.Tensor, path: Path) -> StorageId | None:
        ref = pinned(tensor)
        if ref is not None:
            # An in-place op returns its argument: from here on the tensor is what this node left in it.
            ref.node, ref.path = running.node, path
            return ref.storage
        self._log.dtypes.add(tensor.dtype)
        storage = storage_of(tensor)
        identity = None if storage is None else self._entered(running, storage, path, on_meta=is_on_meta(tensor))
        pin(tensor, Ref(running.node, path, identity, nbytes_of(tensor)))
        return identity

    def _entered(self, running: Running, storage: torch.UntypedStorage, path: Path, *, on_meta: bool) -> StorageId:
        identity = self._ledger.find(storage)
        if identity is not None:
            entry = self._ledger.entries[identity]
            if running.role == "gradient" and entry.role == "intermediate":
                entry.role = "gradient"
            return identity
        if running.overwritten is not None:
            self._ledger.join(storage, running.overwritten)
            return running.overwritten
        place = self._placing.of_result(running, path)
        if on_meta:
            # What adds such zeros asks tensors without memory for the result's shape (BinaryOps.cpp add_zerotensor).
            place = "meta"
        return self._ledger.allocate(storage, place=place, role=running.role, borrowed=self._placing.borrows(running))
