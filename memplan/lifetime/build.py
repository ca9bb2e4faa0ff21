"""Trace → lifetimes: lifespans and categories of every device storage."""

from bisect import bisect_right

from memplan.lifetime.records import Buffer, Category, Lifetimes
from memplan.tracing.records import Op, Role, Storage, Trace
from memplan.units import OpIndex, StorageId

_BY_ROLE: dict[Role, Category] = {
    "parameter": Category.PARAMETER,
    "buffer": Category.BUFFER,
    "input": Category.INPUT,
    "gradient": Category.GRADIENT,
    "optimizer_state": Category.OPTIMIZER_STATE,
    "workspace": Category.WORKSPACE,
    "scratch": Category.TEMPORARY,
}


def build_lifetimes(trace: Trace) -> Lifetimes:
    """Work out who is alive when, of device storages only: host tensors never count as device memory."""
    reader = _Reader(trace)
    buffers = {storage.id: reader.buffer(storage) for storage in trace.storages if storage.place == "device"}
    return Lifetimes(trace=trace, buffers=buffers)


class _Reader:
    """A trace with what is needed to read any of its storages."""

    def __init__(self, trace: Trace) -> None:
        self._ops = trace.ops
        self._ends = {event.storage: event.op + 1 for event in trace.events if event.action == "free"}
        self._step_ends = [step.end_op for step in trace.steps]
        first_event = trace.steps[0].first_event if trace.steps else len(trace.events)
        self._setup: frozenset[StorageId] = frozenset(
            event.storage for event in trace.events[:first_event] if event.action == "alloc"
        )

    def buffer(self, storage: Storage) -> Buffer:
        end = OpIndex(max(self._ends.get(storage.id, len(self._ops)), storage.birth + 1))
        maker = self._maker(storage)
        return Buffer(
            nbytes=storage.nbytes,
            start=storage.birth,
            end=end,
            category=self._category(storage, maker, end),
            module=_module_of_name(storage) if storage.name else maker.module if maker else "",
            source=maker.source if maker and not storage.name else "",
        )

    def _maker(self, storage: Storage) -> Op | None:
        """The op that allocated it; None for what set-up left behind."""
        return None if storage.id in self._setup or not self._ops else self._ops[storage.birth]

    def _category(self, storage: Storage, maker: Op | None, end: OpIndex) -> Category:
        """Return what it is for; what set-up leaves to the steps is a buffer, what it frees itself a temporary."""
        known = _BY_ROLE.get(storage.role)
        if known is not None:
            return known
        if maker is None:
            return Category.TEMPORARY if self._ends.get(storage.id, 1) <= 0 else Category.BUFFER
        if maker.phase == "forward" and self._outlives_forward(maker.index, end):
            return Category.ACTIVATION
        return Category.TEMPORARY

    def _outlives_forward(self, birth: OpIndex, end: OpIndex) -> bool:
        """Does something born in a forward live into its backward, or past its step?"""
        if end >= len(self._ops) or self._step(birth) != self._step(end):
            return True
        return self._ops[end - 1].phase != "forward" or self._ops[end].phase != "forward"

    def _step(self, op: int) -> int:
        return bisect_right(self._step_ends, op)


def _module_of_name(storage: Storage) -> str:
    """``layers.0.mlp`` for ``layers.0.mlp.weight`` and for its optimizer state; a batch is its own owner."""
    return "batch" if storage.role == "input" else storage.name.rpartition(".")[0]
