"""Which allocation eager PyTorch would write an op's result into: what a dispatch mode changes is put right here."""

from typing import Any

import torch

from memplan.tracing import aliasing
from memplan.tracing.early_results import EarlyResults
from memplan.tracing.ledger import Ledger
from memplan.tracing.records import Op
from memplan.tracing.references import References
from memplan.tracing.running import Running
from memplan.units import StorageId

_ADD = "aten.add.Tensor"
_CLONE = "aten.clone.default"
_WAIT = "_c10d_functional.wait_tensor.default"
"""Returns its argument; its fake kernel returns a new tensor."""


class Overwriting:
    """Finds what results overwrite.

    Args:
        references: Of the run's tensors.
        ledger: Takes results that a plain run allocates earlier.
        ops: All that have run; more are added.
    """

    def __init__(self, references: References, ledger: Ledger, ops: list[Op]) -> None:
        self.asked_device = 0
        """``id`` of the tensor whose device was asked for just before, 0 if none."""
        self._conjugated = False
        """Did the last op write out that tensor, since it is conjugated by a bit alone?"""
        self._references = references
        self._ops = ops
        self._early_results = EarlyResults(ledger, references.storage)

    def storage(self, running: Running, node: Any) -> StorageId | None:
        """Return the storage that an op's result overwrites, if any.

        Args:
            running: The op.
            node: The autograd node whose backward runs it; None outside of backward.
        """
        name, args = running.operator.name, running.args
        overwritten = None if node is None else self._by_node(running, node)
        early = self._early_results.overwritten(node, name, args)
        if early is not None:
            overwritten = early
        if name == _WAIT or (name == _ADD and self._adds_in_place(args)):
            overwritten = self._references.of(args[0]).storage
        self._conjugated = name == _CLONE and id(args[0]) == self.asked_device and args[0].is_conj()
        self.asked_device = 0
        return overwritten

    def _by_node(self, running: Running, node: Any) -> StorageId | None:
        name, args = running.operator.name, running.args
        if name == _ADD:
            # Below autograd a conjugated addend is written out first (ATen/native/MathBitsFallback.h).
            asked = id(args[1]) if self._conjugated and self._is_last(args[1]) else self.asked_device
            replaced = aliasing.accumulates_in_place(args, asked)
        elif name in aliasing.OVERWRITING:
            replaced = aliasing.overwrites(node, name, is_its_own=self._is_made_by(args[0], running))
        else:
            return None
        return self._references.of(args[0]).storage if replaced else None

    def _is_last(self, tensor: torch.Tensor) -> bool:
        """Is a tensor the result of the last op?"""
        return self._references.of(tensor).node.op is self._ops[-1]

    def _is_made_by(self, tensor: torch.Tensor, running: Running) -> bool:
        """Is a tensor a result of the phase that now runs, and not one that the program handed in?"""
        maker = self._references.of(tensor).node.op
        return maker is not None and maker.phase == running.phase

    def _adds_in_place(self, args: tuple[Any, ...]) -> bool:
        """Is an ``add`` one of those that torch's own forward code does in place?"""
        maker = self._references.of(args[0]).node.op
        last = maker.name if maker is not None and maker is self._ops[-1] else ""
        return aliasing.adds_mask_in_place() or aliasing.adds_bias_in_place(args, last)
