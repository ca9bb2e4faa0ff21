"""The ops of a run's steps, one record each, and what is counted over them."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch

from memplan.tracing.ledger import Ledger
from memplan.tracing.nested import tensors_in
from memplan.tracing.records import Op
from memplan.tracing.references import References
from memplan.tracing.refs import nbytes_of
from memplan.tracing.running import Running
from memplan.tracing.sparse.table import NATIVE, is_rough
from memplan.units import Bytes, OpIndex, StorageId

_MOST_OF_PARTS = 8
"""Bytes that an unknown kernel may take for each byte of its operands: no known one needs as many (CSR to dense 6)."""

_MOVE_NOTHING = ("aten.empty", "aten.new_empty", "aten._unsafe_view", "aten.set_", "aten.resize_")
"""Names of ops that ask for memory or look at it otherwise, and are no views by their schema."""
_COPY_THEIR_INPUTS = ("fsdp.all_gather_copy_in",)
"""Names of ops that copy the tensors of their first argument into a part of what they return (_fsdp_collectives.py)."""


class OpLog:
    """Writes down each op that has run.

    Args:
        ledger: Takes what unknown kernels may need.
        references: Of the run's tensors.
    """

    def __init__(self, ledger: Ledger, references: References) -> None:
        self.ops: list[Op] = []
        """In order."""
        self.dtypes: set[torch.dtype] = set()
        """Of the tensors that they made."""
        self.arithmetic = Counter[torch.dtype]()
        """FLOPs of the ops whose first result has a type."""
        self.unknown_sparse: dict[str, None] = {}
        """Names of ops that met sparse tensors, and whose kernels are not known."""
        self._ledger, self._references = ledger, references

    def add(self, running: Running, result: Any, writes: list[StorageId]) -> None:
        """Add an op that has run, and wrote these storages."""
        operator, reads = running.operator, running.reads
        read = tuple([ref.storage for ref in reads if ref.storage is not None])
        unknown = len(read) < len(reads) and operator.name not in NATIVE and operator.sparse is None
        if unknown or is_rough(operator.name, running.args):
            self.add_sparse(operator.name, tensors_in([*running.args, *running.kwargs.values()]))
        moved = 0 if operator.is_view else self._moved(running, result)
        op = Op(
            index=OpIndex(len(self.ops)),
            name=operator.name,
            phase=running.phase,
            module=running.owner.module,
            source=running.owner.source,
            flops=operator.flops(*running.args, **running.kwargs, out_val=result) if operator.flops else 0,
            bytes_moved=Bytes(moved),
            reads=read,
            writes=tuple(writes),
        )
        if op.flops:
            self.arithmetic[next(iter(tensors_in(result))).dtype] += op.flops
        self.ops.append(op)
        running.node.op = op

    def _moved(self, running: Running, result: Any) -> int:
        """Bytes that an op reads and writes: all of its tensors, as far as it is not known better."""
        name = running.operator.name
        if name.startswith(_MOVE_NOTHING):
            return 0
        if name.startswith(_COPY_THEIR_INPUTS):
            return 2 * sum(nbytes_of(tensor) for tensor in tensors_in(running.args[0]))
        made = [self._references.of(tensor) for tensor in tensors_in(result)]
        return sum([ref.nbytes for ref in (*running.reads, *made)])

    def add_sparse(self, name: str, tensors: Iterable[torch.Tensor]) -> None:
        """Add an op on sparse tensors of which it is not known what its kernel takes, or what it makes of them."""
        if name in self.unknown_sparse:
            return
        self.unknown_sparse[name] = None
        most = _MOST_OF_PARTS * sum(nbytes_of(tensor) for tensor in tensors)
        self._ledger.scratch(0, role="workspace", name=name, most=most)
