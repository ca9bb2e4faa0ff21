"""Where the new storages of ops lie: on the device, on the host, or in memory that is not of torch's allocator."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from memplan.tracing.cuda.kernel_results import places_apart
from memplan.tracing.ledger import Ledger
from memplan.tracing.nested import Path, tensors_in
from memplan.tracing.records import DeviceTraits, Place
from memplan.tracing.references import References
from memplan.tracing.refs import is_borrowed
from memplan.tracing.running import Running
from memplan.tracing.values import Values
from memplan.units import StorageId

MIXED = "what lies on the host is not counted, though CUDA would refuse to mix it with what lies on the device"
_MOVERS = ("copy", "index", "pack")
"""Parts of the names of ops that take host and device tensors together (``Tensor.to``, ``x[i]``, packed sequences)."""
_ZEROS = "aten._efficientzerotensor.default"
"""Zeros that no memory holds (aten/src/ATen/native/TensorFactories.h ``ZeroTensorAllocator``)."""
_LIFT = "aten.lift_fresh.default"
"""Takes in a tensor that Python made of data."""

PlaceRule = Callable[[Any, tuple[Any, ...], Mapping[str, Any]], Place | None]
"""(operator, args, kwargs) → place of its new storages; None: where its tensor arguments are."""


class Placing:
    """Places what ops make.

    Args:
        device: What the step is traced for.
        rule: Tells device from host; None where all memory is one.
        references: Of the run's tensors.
        ledger: Has the places of storages.
        values: Take what is assumed.
    """

    def __init__(
        self, device: DeviceTraits, rule: PlaceRule | None, references: References, ledger: Ledger, values: Values
    ) -> None:
        self._is_cpu = device.kind == "cpu"
        self._rule = rule
        self._references, self._ledger, self._values = references, ledger, values

    def is_for_host(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Return whether an op without tensors of the device makes something for the host."""
        return self._rule is None or self._rule(func, args, kwargs) in (None, "host")

    def of_op(self, running: Running, operands: Iterable[StorageId | None], *, recording: bool) -> Place:
        """Return where an op's new storages lie; in a recorded step an op on both places at once is named."""
        if self._rule is None:
            return self._references.default_place
        ruled = self._rule(running.func, running.args, running.kwargs)
        if ruled is not None:
            return ruled
        entries = self._ledger.entries
        places = {entries[identity].place for identity in operands if identity is not None}
        if "device" in places and len(places) > 1 and recording and self._is_mixed(running):
            self._values.assume(f"{MIXED}: {running.operator.name}")
        if "device" in places or not places:
            return "device" if places else self._references.default_place
        # What is made of pinned tensors is pageable.
        return "meta" if places == {"meta"} else "host"

    def of_result(self, running: Running, path: Path) -> Place:
        """Return where one of an op's results lies: a few kernels leave some of theirs elsewhere."""
        if self._is_cpu or len(path) != 1:
            return running.place
        return places_apart(running.operator.name, running.args).get(path[0], running.place)

    def borrows(self, running: Running) -> bool:
        """Does an op's result show memory that is not of torch's allocator? On a CUDA job's host all of it counts."""
        if running.operator.name == _ZEROS:
            return True
        return self._is_cpu and running.operator.name == _LIFT and is_borrowed(running.args[0])

    def _is_mixed(self, running: Running) -> bool:
        """Does an op work on elements of both places? Copies may, and indices and scalars may lie on the host."""
        if any(part in running.operator.name for part in _MOVERS):
            return False
        operands = tensors_in([*running.args, *running.kwargs.values()])
        return any(tensor.dim() > 0 and self._references.is_host(tensor) for tensor in operands)
