"""Keeps what is known of tensors' elements up to date as ops run, and forgets it where an op writes something else."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch

from memplan.tracing.calls import Operator
from memplan.tracing.knowledge import NOTHING, Knowledge
from memplan.tracing.nested import tensors_in
from memplan.tracing.router_rules import gathered
from memplan.tracing.values import TEACHERS, Values, runs_for_real
from memplan.units import StorageId

ASSUMED_IDLE: Mapping[Any, str] = {
    torch.ops.aten._amp_foreach_non_finite_check_and_unscale_.default: "gradient scaling finds no overflow",
}
"""Op that writes a flag, its second argument → the assumption that the flag stays what it was (GradScaler then steps
the optimizer)."""
EXCHANGES: Mapping[str, Callable[[Values, Knowledge, int], Knowledge]] = {
    "c10d.alltoall_base_.default": Values.exchanged,
    "c10d._allgather_base_.default": gathered,
}
"""Collective that writes its first argument from its second → what is known of that, where all ranks send alike."""


def _ranks(group: Any) -> int:
    """How many ranks a collective's group has."""
    return int(torch.distributed.ProcessGroup.unbox(group).size())


class Known(Protocol):
    """Something pinned on a tensor that carries knowledge."""

    knowledge: Knowledge
    storage: StorageId | None


class Learning:
    """What a run has learnt so far."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._knowing: dict[StorageId, list[Known]] = defaultdict(list)
        """Storage → carriers of knowledge of its elements: a tensor and its views know each for itself."""

    def __call__(
        self,
        func: Any,
        operator: Operator,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        result: Any,
        reads: Sequence[Known],
        of: Callable[[torch.Tensor], Known],
    ) -> None:
        """Take in one op that has run."""
        if func in ASSUMED_IDLE:
            self._values.assume(ASSUMED_IDLE[func])
            flag = of(args[1])
            self.enter(flag, replace(flag.knowledge, is_assumed=True))
            return
        known = [each.knowledge for each in reads]
        if (exchange := EXCHANGES.get(operator.name)) is not None:
            self.enter(of(args[0]), exchange(self._values, of(args[1]).knowledge, _ranks(args[2])))
            return
        if func not in TEACHERS and all(each is NOTHING for each in known):
            if not operator.is_view:
                self._forget(operator, args, kwargs, of)
            return
        learnt = self._values.learn(func, args, kwargs, result, known)
        if not operator.is_view and not runs_for_real(func, known):
            # An in-place op with something unknown in it: what was known of the tensor and its views no longer holds.
            self._forget(operator, args, kwargs, of)
        for tensor, knowledge in zip(tensors_in(result), learnt, strict=False):
            self.enter(of(tensor), knowledge)

    def enter(self, carrier: Known, knowledge: Knowledge) -> None:
        """Note what is known of the tensor that a carrier is pinned on."""
        carrier.knowledge = knowledge
        if knowledge is not NOTHING and carrier.storage is not None:
            self._knowing[carrier.storage].append(carrier)

    def _forget(
        self,
        operator: Operator,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        of: Callable[[torch.Tensor], Known],
    ) -> None:
        for tensor in operator.written(args, kwargs):
            self.forget(of(tensor).storage)

    def forget(self, storage: StorageId | None) -> None:
        """Forget what is known of a storage's elements, in every tensor and view."""
        for carrier in self._knowing.pop(storage, ()) if storage is not None else ():
            carrier.knowledge = NOTHING
