"""The recorder: one dispatch mode above the fake mode that writes down every op and every storage of a running step.

Each op becomes an fx node with its owner, phase, FLOPs and bytes; each new storage an allocation in the ledger. What a
dispatch mode changes about the run it watches is put right here (``aliasing``); what a dispatch mode cannot see, the
scratch of kernels, comes from a table of rules (``scratch``); values that fake tensors do not have, from ``values``.
"""

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from memplan.trace import aliasing
from memplan.trace.attribution import Attribution
from memplan.trace.calls import Operator, describe, tensors_in
from memplan.trace.cuda.replacements import decompose
from memplan.trace.ledger import Ledger
from memplan.trace.records import DeviceTraits, Op, Phase, Place, Role
from memplan.trace.scratch.rules import Call, RuleTable, Script
from memplan.trace.values import NOTHING, TEACHERS, Knowledge, Values
from memplan.units import Bytes, OpIndex, StorageId

_ASK_DEVICE = torch.ops.prim.device.default
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, FakeTensor})
# CUDA kernels that allocate their results in another order than they return them.
_RESULT_ORDER: Mapping[str, tuple[int, ...]] = {
    # aten/src/ATen/native/cuda/Dropout.cu dropout_cuda: the mask comes first.
    "aten.native_dropout.default": (1, 0),
}

PlaceRule = Callable[[Any, tuple[Any, ...], Mapping[str, Any]], Place | None]
"""(operator, args, kwargs) → place of its new storages; None: where its tensor arguments are."""


class Ref:
    """What the recorder pins on a tensor: the node that made it, its storage and its size."""

    __slots__ = ("knowledge", "nbytes", "node", "position", "storage")

    def __init__(self, node: torch.fx.Node, position: int | None, storage: StorageId | None, nbytes: int) -> None:
        self.node = node
        self.position = position
        """Index in the node's results, until someone reads it; None if the node is the tensor."""
        self.storage = storage
        self.nbytes = nbytes
        self.knowledge = NOTHING
        """What is known of the tensor's elements."""


class Recorder(TorchDispatchMode):
    """Watches everything dispatched while it is entered; ``recording`` says whether ops go to the graph."""

    def __init__(self, device: DeviceTraits, rules: RuleTable, place_rule: PlaceRule | None, values: Values) -> None:
        super().__init__()
        self.device = device
        self.values = values
        self.ledger = Ledger()
        self.attribution = Attribution()
        self.graph = torch.fx.Graph()
        self.constants: dict[str, torch.Tensor] = {}
        self.recording = False
        self.default_place: Place = "device"
        """Where tensors go that nothing else places."""
        self.ops: list[Op] = []
        self._rules = rules
        self._place_rule = place_rule
        self._operators: dict[Any, Operator] = {}
        self._asked_device = 0
        self._kept: set[str] = set()
        values.knowledge_of = _knowledge_of

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record everything that runs in the context."""
        with self.attribution.watching(), self.ledger.watching_resizes(), self:
            yield

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Tell torch not to wrap every dispatch in a guard against ``torch.compile``: what runs here is eager."""
        return False

    # ------------------------------------------------------------------ what enters from outside

    def adopt(self, tensor: torch.Tensor, *, role: Role, name: str) -> StorageId | None:
        """Enter a tensor made outside the recorded ops (parameter, buffer, input) as a placeholder on the device.

        Args:
            tensor: A fake tensor; one already adopted keeps its first name.
            role: What it is.
            name: Qualified name.
        """
        if tensor.__dict__.get("_memplan") is not None:
            return self._ref(tensor).storage
        storage = tensor.untyped_storage()
        identity = self.ledger.find(storage)
        if identity is None:
            identity = self.ledger.allocate(storage, place="device", role=role, name=name)
        elif self.ledger.entries[identity].place == "host":
            identity = self.ledger.move(storage, place="device", role=role, name=name)
        else:
            entry = self.ledger.entries[identity]
            entry.role, entry.name = (role, name) if not entry.name else (entry.role, entry.name)
        node = self.graph.placeholder(name.replace(".", "_") or "input")
        self._pin(tensor, Ref(node, None, identity, _nbytes(tensor)))
        return identity

    def claim(self, tensor: torch.Tensor, *, role: Role, of: torch.Tensor) -> None:
        """Say what an op's result turned out to be, and which adopted tensor it belongs to."""
        identity, owner = self._identity(tensor), self._identity(of)
        if identity is not None and self.ledger.entries[identity].role == "intermediate":
            self.ledger.entries[identity].role = role
            self.ledger.entries[identity].name = "" if owner is None else self.ledger.entries[owner].name

    # ------------------------------------------------------------------ the hot path

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Write one op down and run it on the fake tensors."""
        if func is _ASK_DEVICE and type(args[0]) is FakeTensor:
            self._asked_device = id(args[0])
            return args[0].fake_device
        for kind in types:
            if kind not in _PLAIN:
                # A wrapper subclass (DTensor …): let it desugar, its inner ops come back here.
                return NotImplemented
        kwargs = kwargs or {}
        described = self._operators.get(func)
        if described is None:
            described = self._operators[func] = describe(func, self._rules)
        asked, self._asked_device = self._asked_device, 0
        if described.composite and torch.is_inference_mode_enabled():
            # Under inference mode composites arrive whole; their inner allocations would be lost.
            with self:
                result = decompose(func, args, kwargs)
            if result is not NotImplemented:
                return result
        if not self.recording:
            return self._set_up(func, described, args, kwargs)
        return self._record(func, described, args, kwargs, asked)

    def _set_up(self, func: Any, described: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = self.values.run(func, args, kwargs)
        operands = (self._identity(tensor) for tensor in tensors_in([*args, *kwargs.values()]))
        place = self._place(func, args, kwargs, operands)
        for tensor in tensors_in(result):
            storage = _storage(tensor)
            if storage is not None and self.ledger.find(storage) is None:
                self.ledger.allocate(storage, place=place)
        return result

    def _record(
        self, func: Any, described: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], asked: int
    ) -> Any:
        in_backward = torch._C._current_graph_task_id() != -1
        autograd = torch._C._current_autograd_node() if in_backward else None
        owner = (
            self.attribution.forward_owner() if autograd is None else self.attribution.backward_owner(autograd)
        )
        phase = self.attribution.phase(in_backward=in_backward)
        ledger = self.ledger
        ledger.op = len(self.ops)
        reads: list[Ref] = []
        node_args = tuple([self._argument(value, reads) for value in args])
        node_kwargs = {key: self._argument(value, reads) for key, value in kwargs.items()}
        overwritten = self._overwritten(described.name, args, asked, autograd) if in_backward else None
        # An op's index is taken before it runs, so that frees inside it (of its own temporaries) are its own.
        result = None if described.is_silent else self.values.run(func, args, kwargs)
        node = self.graph.create_node("call_function", func, node_args, node_kwargs, f"{described.label}_{ledger.op}")
        script = self._scratch(described, args, kwargs, result, in_backward)
        held = self._play(script.before, {}) if script else {}
        place = self._place(func, args, kwargs, (ref.storage for ref in reads))
        is_gradient = autograd is not None and autograd.name() == "torch::autograd::AccumulateGrad"
        role: Role = "gradient" if is_gradient else "intermediate"
        writes = self._results(result, node, described, overwritten, place, role)
        if described.mutated or described.mutated_keywords:
            writes += self._mutated(described, args, kwargs)
        if func in TEACHERS or any([ref.knowledge is not NOTHING for ref in reads]):
            self._learn(func, described, args, kwargs, result, reads)
        if script:
            for identity in reversed(self._play(script.after, held).values()):
                ledger.release_scratch(identity)
        self._note(described, node, phase, owner, reads, writes, result, args, kwargs)
        return result

    # ------------------------------------------------------------------ arguments and results

    def _argument(self, value: Any, reads: list[Ref]) -> Any:
        kind = type(value)
        if kind is FakeTensor:
            ref = self._ref(value)
            reads.append(ref)
            return self._node(ref)
        if kind is list or kind is tuple:
            return [self._argument(item, reads) for item in value]
        if isinstance(value, torch.Tensor):
            return self._constant(value)
        return None if kind is torch.Generator else value

    def _ref(self, tensor: torch.Tensor) -> Ref:
        ref = tensor.__dict__.get("_memplan")
        return ref if ref is not None else self._stray(tensor)

    def _stray(self, tensor: torch.Tensor) -> Ref:
        """A tensor that no recorded op made: born in set-up, or inside C++ as an alias of a known storage."""
        storage = _storage(tensor)
        identity = None
        if storage is not None:
            identity = self.ledger.find(storage)
            if identity is None:
                identity = self.ledger.allocate(storage, place=self.default_place, role="buffer")
        ref = Ref(self.graph.placeholder("stray"), None, identity, _nbytes(tensor))
        self._pin(tensor, ref)
        return ref

    def _constant(self, tensor: torch.Tensor) -> torch.fx.Node:
        name = f"_constant_{len(self.constants)}"
        self.constants[name] = tensor
        return self.graph.create_node("get_attr", name)

    def _node(self, ref: Ref) -> torch.fx.Node:
        if ref.position is not None:
            ref.node = self.graph.create_node("call_function", operator.getitem, (ref.node, ref.position))
            ref.position = None
        return ref.node

    @staticmethod
    def _pin(tensor: torch.Tensor, ref: Ref) -> None:
        tensor._memplan = ref  # type: ignore[attr-defined]

    def _results(
        self,
        result: Any,
        node: torch.fx.Node,
        described: Operator,
        overwritten: StorageId | None,
        place: Place,
        role: Role,
    ) -> list[StorageId]:
        if isinstance(result, torch.Tensor):
            identity = self._result(result, node, None, overwritten, place, role)
            return [] if identity is None or described.is_view else [identity]
        if not isinstance(result, list | tuple):
            return []
        order = _RESULT_ORDER.get(described.name) or range(len(result))
        writes = []
        for position in order:
            if isinstance(result[position], torch.Tensor):
                identity = self._result(result[position], node, position, overwritten, place, role)
                if identity is not None and not described.is_view:
                    writes.append(identity)
        return writes

    def _result(
        self,
        tensor: torch.Tensor,
        node: torch.fx.Node,
        position: int | None,
        overwritten: StorageId | None,
        place: Place,
        role: Role,
    ) -> StorageId | None:
        ref = tensor.__dict__.get("_memplan")
        if ref is not None:
            # An in-place op returns its argument: from here on the tensor is what this node left in it.
            ref.node, ref.position = node, position
            return ref.storage  # type: ignore[no-any-return]
        storage = _storage(tensor)
        if storage is None:
            self._pin(tensor, Ref(node, position, None, 0))
            return None
        identity = self.ledger.find(storage)
        if identity is None:
            if overwritten is not None:
                identity = overwritten
                self.ledger.join(storage, identity)
            else:
                identity = self.ledger.allocate(storage, place=place, role=role)
        elif role == "gradient":
            entry = self.ledger.entries[identity]
            if entry.role == "intermediate":
                entry.role = role
        self._pin(tensor, Ref(node, position, identity, _nbytes(tensor)))
        return identity

    def _mutated(self, described: Operator, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[StorageId]:
        written = [args[index] for index in described.mutated if index < len(args)]
        written += [kwargs.get(name) for name in described.mutated_keywords]
        found = (self._ref(tensor).storage for tensor in tensors_in(written))
        return [identity for identity in found if identity is not None]

    def _learn(
        self,
        func: Any,
        described: Operator,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        result: Any,
        reads: list[Ref],
    ) -> None:
        learnt = self.values.learn(func, args, kwargs, result, reads)
        for tensor, knowledge in zip(tensors_in(result), learnt, strict=False):
            self._ref(tensor).knowledge = knowledge
        if not learnt and not all(ref.knowledge.value is not None for ref in reads):
            # An in-place op with something unknown in it: what was known is no longer true.
            for index in described.mutated:
                for tensor in tensors_in(args[index]) if index < len(args) else ():
                    self._ref(tensor).knowledge = NOTHING

    def _overwritten(self, name: str, args: tuple[Any, ...], asked: int, autograd: Any) -> StorageId | None:
        if name == "aten.add.Tensor":
            replaced = isinstance(args[1], torch.Tensor) and aliasing.accumulates_in_place(args, asked)
        else:
            replaced = autograd is not None and (aliasing.node_kind(autograd), name) in aliasing.OVERWRITES
        return self._ref(args[0]).storage if replaced else None

    def _place(
        self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], operands: Iterable[StorageId | None]
    ) -> Place:
        if self._place_rule is None:
            return self.default_place
        ruled = self._place_rule(func, args, kwargs)
        if ruled is not None:
            return ruled
        entries = self.ledger.entries
        places = {entries[identity].place for identity in operands if identity is not None}
        return "device" if "device" in places else "host" if places else self.default_place

    def _identity(self, tensor: torch.Tensor) -> StorageId | None:
        storage = _storage(tensor)
        return None if storage is None else self.ledger.find(storage)

    # ------------------------------------------------------------------ scratch and notes

    def is_host(self, tensor: torch.Tensor) -> bool:
        """Does this tensor lie in host memory?"""
        identity = self._identity(tensor)
        return (self.default_place if identity is None else self.ledger.entries[identity].place) == "host"

    def _scratch(
        self, described: Operator, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any, in_backward: bool
    ) -> Script | None:
        if described.scratch is None:
            return None
        return described.scratch(
            Call(
                name=described.name,
                args=args,
                kwargs=kwargs,
                out=result,
                device=self.device,
                in_backward=in_backward,
                is_host=self.is_host,
            )
        )

    def _play(self, script: tuple[Any, ...], held: dict[str, StorageId]) -> dict[str, StorageId]:
        for action, key, nbytes in script:
            if action == "alloc":
                held[key] = self.ledger.scratch(nbytes)
            elif action == "free":
                self.ledger.release_scratch(held.pop(key))
            elif key not in self._kept:
                self._kept.add(key)
                self.ledger.scratch(nbytes, role="workspace", name=key)
        return held

    def _note(
        self,
        described: Operator,
        node: torch.fx.Node,
        phase: Phase,
        owner: Any,
        reads: list[Ref],
        writes: list[StorageId],
        result: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> None:
        moved = 0
        if not described.is_view:
            moved = sum([ref.nbytes for ref in reads])
            for tensor in tensors_in(result):
                moved += self._ref(tensor).nbytes
        op = Op(
            index=OpIndex(len(self.ops)),
            name=described.name,
            phase=phase,
            module=owner.module,
            source=owner.source,
            flops=described.flops(*args, **kwargs, out_val=result) if described.flops else 0,
            bytes_moved=Bytes(moved),
            reads=tuple([ref.storage for ref in reads if ref.storage is not None]),
            writes=tuple(writes),
        )
        self.ops.append(op)
        node.meta["op"] = op


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """The storage of a tensor; None for layouts without one (sparse), whose parts are tensors of their own."""
    return tensor.untyped_storage() if tensor.layout is torch.strided else None


def _nbytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _knowledge_of(tensor: torch.Tensor) -> Knowledge:
    ref = tensor.__dict__.get("_memplan")
    return NOTHING if ref is None else ref.knowledge
