"""The recorder: one dispatch mode above the fake mode that writes down every op and every storage of a running step.

Each op becomes a node of a graph with its owner, phase, FLOPs and bytes; each new storage an allocation in the ledger.
What a dispatch mode changes about the run it watches is put right here (``aliasing``). What it cannot see, the scratch
of kernels, comes from a table of rules (``scratch``); values that fake tensors do not have, from ``values``.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from memplan.seam.autograd import current_autograd_node, current_graph_task_id
from memplan.seam.dispatcher import decompose
from memplan.seam.fake import FakeTensor
from memplan.seam.modes import (
    DisableTorchFunction,
    TorchDispatchMode,
    get_current_dispatch_mode_stack,
    get_unwrapped,
    is_functorch_wrapped_tensor,
)
from memplan.tracing import aliasing, random_states
from memplan.tracing.attribution import Attribution
from memplan.tracing.calls import Operator, describe
from memplan.tracing.cuda.kernel_results import RESULT_ORDER, places_apart
from memplan.tracing.draws import DRAWS
from memplan.tracing.early_results import EarlyResults
from memplan.tracing.formulas import Formulas
from memplan.tracing.host_ops import HostOps
from memplan.tracing.knowledge import NOTHING
from memplan.tracing.learning import Learning
from memplan.tracing.ledger import Ledger
from memplan.tracing.nested import Path, leaves_of, tensors_in
from memplan.tracing.records import DeviceTraits, Op, Place, Role
from memplan.tracing.refs import (
    PLAIN,
    Aside,
    Ref,
    aside,
    is_borrowed,
    is_on_meta,
    is_wrapper,
    knowledge_of,
    nbytes_of,
    parts_of,
    pin,
    pinned,
    storage_of,
)
from memplan.tracing.running import Running
from memplan.tracing.scratch.player import ScratchPlayer
from memplan.tracing.scratch.rules import RuleTable, Script
from memplan.tracing.sparse.parts import any_sparse, is_sparse
from memplan.tracing.sparse.table import ALWAYS, BODIES, NATIVE, Body, is_rough
from memplan.tracing.step_graph import StepGraph
from memplan.tracing.values import TEACHERS, Values
from memplan.units import Bytes, OpIndex, StorageId

_TO = "aten._to_copy.default"
_ASK_DEVICE = torch.ops.prim.device.default
_WAIT = "_c10d_functional.wait_tensor.default"
"""Returns its argument; its fake kernel returns a new tensor."""

MIXED = "what lies on the host is not counted, though CUDA would refuse to mix it with what lies on the device"
_MOVERS = ("copy", "index", "pack")
"""Parts of the names of ops that take host and device tensors together (``Tensor.to``, ``x[i]``, packed sequences)."""


_ZEROS = "aten._efficientzerotensor.default"
"""Zeros that no memory holds (aten/src/ATen/native/TensorFactories.h ``ZeroTensorAllocator``)."""
_LIFT = "aten.lift_fresh.default"
"""Takes in a tensor that Python made of data."""
_MOST_OF_PARTS = 8
"""Bytes that an unknown kernel may take for each byte of its operands: no known one needs as many (CSR to dense 6)."""

PlaceRule = Callable[[Any, tuple[Any, ...], Mapping[str, Any]], Place | None]
"""(operator, args, kwargs) → place of its new storages; None: where its tensor arguments are."""


class Recorder(TorchDispatchMode):
    """Watches everything dispatched while it is entered.

    Args:
        device: What the step is traced for.
        rules: Scratch of its kernels.
        place_rule: Tells device from host; None where all memory is one.
        values: Answers ops that need data.
        bodies: What kernels do with sparse tensors.
    """

    def __init__(
        self,
        device: DeviceTraits,
        rules: RuleTable,
        place_rule: PlaceRule | None,
        values: Values,
        bodies: Mapping[str, Body] = BODIES,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device = device
        self.values = values
        self.ledger = Ledger()
        self.attribution = Attribution()
        self.step_graph = StepGraph(self._ref)
        self.ops: list[Op] = []
        self.now = ""
        """Name of the op that runs now; of the one that failed, after an error."""
        self.recording = False
        """Do ops go to the graph? In set-up only storages are followed."""
        self.dtypes: set[torch.dtype] = set()
        """Of the tensors that ops of the steps made."""
        self.arithmetic = Counter[torch.dtype]()
        """FLOPs of the ops whose first result has a type."""
        self.default_place: Place = "device"
        """Where tensors go that nothing else places."""
        self.host_is_real = False
        """Are ops on real tensors run for real, where their results stay on the host?"""
        self.host_ops = HostOps(values)
        """Runs them."""
        self.role_of_copies: Role = "intermediate"
        """What tensors are that are copied from the host to the device."""
        self.user_code: Callable[[], AbstractContextManager[object]] = nullcontext
        """The context of user code that runs inside an operator."""
        self.unknown_sparse: dict[str, None] = {}
        """Names of ops that met sparse tensors, and whose kernels are not known."""
        self._rules = rules
        self._bodies = bodies
        self._place_rule = place_rule
        self._operators: dict[Any, Operator] = {}
        self._asked_device = 0
        self._muted = 0
        self._formulas = Formulas(self.ledger, values.assume, device.kind)
        self._early_results = EarlyResults(self.ledger, self._identity)
        self._player = ScratchPlayer(self.ledger, device, self.is_host)
        values.knowledge_of = knowledge_of
        self._learn = Learning(values)

    @property
    def bounded(self) -> frozenset[str]:
        """Names of ops that ran and whose scratch is known between bounds only."""
        return frozenset(self._player.bounded)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record everything that runs in the context."""
        states = random_states.watching_states(self._random_state) if self.device.kind == "cpu" else nullcontext()
        with self.attribution.watching(), self.ledger.watching_resizes(), states, self:
            yield

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Tell torch not to wrap every dispatch in a guard against ``torch.compile``: what runs here is eager."""
        return False

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Let what runs in the context pass unseen: it is torch's own, and on no device."""
        self._muted += 1
        try:
            yield
        finally:
            self._muted -= 1

    def use_stream(self, number: int) -> None:
        """Say which CUDA stream allocations are made on from here; 0 is the default one."""
        self.ledger.stream = number

    # ------------------------------------------------------------------ what is said from outside

    def adopt(self, tensor: torch.Tensor, *, role: Role, name: str, moves: bool = True) -> None:
        """Enter a tensor made outside the recorded ops (parameter, buffer, input) as a placeholder on the device.

        Args:
            tensor: A fake tensor; one already adopted keeps its first name.
            role: What it is.
            name: Qualified name.
            moves: Does it go to the device now? Parts of a DTensor stay where they are: FSDP may keep them on the host.
        """
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
        identity, owner = self._identity(tensor), self._identity(of)
        if identity is not None and self.ledger.entries[identity].role == "intermediate":
            self.ledger.entries[identity].role = role
            self.ledger.entries[identity].name = "" if owner is None else self.ledger.entries[owner].name

    def forget(self, tensors: Iterable[torch.Tensor]) -> None:
        """Something outside of torch may have written these tensors: what was known of their elements is void."""
        for tensor in tensors:
            self._learn.forget(self._identity(tensor))

    def is_host(self, tensor: torch.Tensor) -> bool:
        """Does this tensor lie in host memory?"""
        while is_functorch_wrapped_tensor(tensor):
            # Inside ``vmap``, which transformers builds masks with, tensors are wrapped and have no storage.
            tensor = get_unwrapped(tensor)
        if is_wrapper(tensor):
            return all(self.is_host(part) for part in parts_of(tensor))
        identity = self._identity(tensor)
        return (self.default_place if identity is None else self.ledger.entries[identity].place) != "device"

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        """Does this tensor lie in page-locked host memory?"""
        identity = self._identity(tensor)
        return identity is not None and self.ledger.entries[identity].place == "pinned"

    def _adopted(self, storage: torch.UntypedStorage, role: Role, name: str, *, moves: bool) -> StorageId:
        identity = self.ledger.find(storage)
        if identity is None:
            return self.ledger.allocate(storage, place="device", role=role, name=name)
        entry = self.ledger.entries[identity]
        if moves and entry.place != "device":
            return self.ledger.move(storage, place="device", role=role, name=name)
        if not entry.name:
            entry.role, entry.name = role, name
        return identity

    # ------------------------------------------------------------------ the hot path

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Write one op down and run it on the fake tensors."""
        if func is _ASK_DEVICE and type(args[0]) is FakeTensor:
            self._asked_device = id(args[0])
            return args[0].fake_device
        for kind in types:
            if kind not in PLAIN and not issubclass(kind, FakeTensor):
                # A wrapper subclass (DTensor …): let it desugar, its inner ops come back here.
                return NotImplemented
        kwargs = kwargs or {}
        if self._muted:
            return func(*args, **kwargs)
        if self.host_is_real and self._stays_real(func, args, kwargs):
            return self.host_ops.run(func, args, kwargs)
        if self.host_is_real and func in DRAWS and self._is_for_host(func, args, kwargs):
            drawn = self.host_ops.draw(func, args, kwargs)
            if drawn is not None:
                return drawn
        operator = self._operators.get(func)
        if operator is None:
            operator = self._operators[func] = describe(func, self._rules, self._bodies)
        result = self._taken_apart(operator, func, args, kwargs)
        return self._follow(Running(func, operator, args, kwargs)) if result is NotImplemented else result

    def _taken_apart(self, operator: Operator, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call that is made of others, which come back here; NotImplemented where it is one op."""
        if operator.composite:
            # Under inference mode, and out of tensors that are made of others (nested ones), composites arrive whole;
            # their inner allocations would be lost.
            with self:
                result = decompose(func, args, kwargs)
            if result is not NotImplemented:
                return result
        if operator.body is not None:
            with self, self.user_code():
                return operator.body(*args, **kwargs)
        if operator.sparse is not None and (operator.name in ALWAYS or any_sparse(args)):
            if self.device.kind == "cuda" and self.recording and any_sparse(args):
                self._note_sparse(operator.name, tensors_in(args))
            with DisableTorchFunction(), self:
                return operator.sparse(self.values, func, args, kwargs)
        return NotImplemented

    def _stays_real(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Is an op one of the host's own, on tensors with data?"""
        tensors = tensors_in([*args, *kwargs.values()])
        if not tensors or any(isinstance(tensor, FakeTensor) or is_wrapper(tensor) for tensor in tensors):
            return False
        return self._is_for_host(func, args, kwargs)

    def _is_for_host(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return self._place_rule is None or self._place_rule(func, args, kwargs) in (None, "host")

    def _random_state(self) -> torch.Tensor:
        """A state of the random generator, as an op that makes it."""
        if self not in get_current_dispatch_mode_stack():
            # A compiler asks for its own sake, and hides what it does from all modes.
            return random_states.get_state()
        state: torch.Tensor = self._follow(Running(random_states.get_state, random_states.OPERATOR, (), {}))
        return state

    def _follow(self, running: Running) -> Any:
        # A function mode of the semantics has seen the call; it must not see every attribute that is read from here on.
        with DisableTorchFunction():
            return self._record(running) if self.recording else self._set_up(running)

    def _set_up(self, running: Running) -> Any:
        self._asked_device = 0
        result = self.values.run(running.func, running.args, running.kwargs)
        tensors = tensors_in([*running.args, *running.kwargs.values()])
        place = self._place(running, (self._identity(tensor) for tensor in tensors))
        # Of a GPU's kernels only what lives beyond set-up counts; on the CPU a batch is made where the step runs.
        if place == "device" and running.operator.name == _TO and self.is_host(running.args[0]):
            running.role = self.role_of_copies
        script = self._player.script(running, result) if self.device.kind == "cpu" else Script()
        self._player.play(script.before)
        for tensor in tensors_in(result):
            storage = storage_of(tensor)
            if storage is not None and self.ledger.find(storage) is None:
                self.ledger.allocate(storage, place=place, role=running.role, borrowed=self._borrows(running))
        self._player.play(script.after)
        self._player.end()
        if self._teaches(running.func, running.operator) or any(
            knowledge_of(tensor) is not NOTHING for tensor in tensors
        ):
            seen = [self._seen(tensor) for tensor in tensors]
            self._learn(
                running.func, running.operator, running.args, running.kwargs, result=result, reads=seen, of=self._seen
            )
        return result

    def _record(self, running: Running) -> Any:
        operator, args, kwargs = running.operator, running.args, running.kwargs
        self._attribute(running)
        self.ledger.op, self.now = len(self.ops), operator.name
        node_args, node_kwargs = self.step_graph.arguments(args, kwargs, running.reads)
        result = None if operator.is_silent else self._formulas.laid_out(self.values.run(running.func, args, kwargs))
        running.node = self.step_graph.call(running.func, node_args, node_kwargs)
        running.place = self._place(running, (ref.storage for ref in running.reads))
        if running.place == "device" and operator.name == _TO and self.is_host(args[0]):
            running.role = self.role_of_copies
        script = self._player.script(running, result)
        self._player.play(script.before)
        writes = self._enter_results(running, result, script)
        self._player.play(script.after)
        self._player.end()
        if self._teaches(running.func, operator) or any(ref.knowledge is not NOTHING for ref in running.reads):
            self._learn(running.func, operator, args, kwargs, result=result, reads=running.reads, of=self._ref)
        self._note(running, result, writes)
        self.now = ""
        return result

    def _attribute(self, running: Running) -> None:
        """Find out on whose behalf an op runs."""
        # An optimizer may step in a hook of backward; what it makes is its own.
        running.in_backward = current_graph_task_id() != -1 and not self.attribution.steps_optimizer
        node = current_autograd_node() if running.in_backward else None
        running.owner = self.attribution.forward_owner() if node is None else self.attribution.backward_owner(node)
        running.phase = self.attribution.phase(in_backward=running.in_backward)
        # A closure runs backward within the optimizer's step: what is done in place there is so all the same.
        node = current_autograd_node() if self.attribution.runs_backward else None
        self._formulas.follow(node)
        if node is not None:
            if running.in_backward and node.name() == "torch::autograd::AccumulateGrad":
                running.role = "gradient"
            running.overwritten = self._overwritten(running, node)
        early = self._early_results.overwritten(node, running.operator.name, running.args)
        running.overwritten = running.overwritten if early is None else early
        if running.operator.name == "aten.add.Tensor" and self._adds_in_place(running.args):
            running.overwritten = self._ref(running.args[0]).storage
        if running.operator.name == _WAIT:
            running.overwritten = self._ref(running.args[0]).storage
        self._asked_device = 0

    def _overwritten(self, running: Running, node: Any) -> StorageId | None:
        name, args = running.operator.name, running.args
        if name == "aten.add.Tensor":
            replaced = aliasing.accumulates_in_place(args, self._asked_device)
        elif name in aliasing.OVERWRITING:
            replaced = aliasing.overwrites(node, name, is_its_own=self._is_made_by(args[0], running))
        else:
            return None
        return self._ref(args[0]).storage if replaced else None

    def _is_made_by(self, tensor: torch.Tensor, running: Running) -> bool:
        """Is a tensor a result of the phase that now runs, and not one that the program handed in?"""
        maker = self._ref(tensor).node.op
        return maker is not None and maker.phase == running.phase

    def _adds_in_place(self, args: tuple[Any, ...]) -> bool:
        """Is an ``add`` one of those that torch's own forward code does in place?"""
        maker = self._ref(args[0]).node.op
        last = maker.name if maker is not None and maker is self.ops[-1] else ""
        return aliasing.adds_mask_in_place() or aliasing.adds_bias_in_place(args, last)

    # ------------------------------------------------------------------ results

    def _enter_results(self, running: Running, result: Any, script: Script) -> list[StorageId]:
        """Enter an op's new storages; ids of all that it wrote."""
        leaves = leaves_of(result)
        order = RESULT_ORDER.get(running.operator.name)
        if order is not None:
            leaves = [leaves[position] for position in order]
        writes = []
        for path, tensor in leaves:
            self._player.play(script.between.get(path, ()))
            writes.append(self._enter_result(running, tensor, path))
        if running.operator.is_view:
            return []
        writes += [self._ref(tensor).storage for tensor in running.operator.written(running.args, running.kwargs)]
        return [identity for identity in writes if identity is not None]

    def _enter_result(self, running: Running, tensor: torch.Tensor, path: Path) -> StorageId | None:
        ref = pinned(tensor)
        if ref is not None:
            # An in-place op returns its argument: from here on the tensor is what this node left in it.
            ref.node, ref.path = running.node, path
            return ref.storage
        if self.recording:
            self.dtypes.add(tensor.dtype)
        storage = storage_of(tensor)
        identity = None if storage is None else self._entered(running, storage, path, on_meta=is_on_meta(tensor))
        pin(tensor, Ref(running.node, path, identity, nbytes_of(tensor)))
        return identity

    def _entered(self, running: Running, storage: torch.UntypedStorage, path: Path, *, on_meta: bool) -> StorageId:
        identity = self.ledger.find(storage)
        if identity is not None:
            entry = self.ledger.entries[identity]
            if running.role == "gradient" and entry.role == "intermediate":
                entry.role = "gradient"
            return identity
        if running.overwritten is not None:
            self.ledger.join(storage, running.overwritten)
            return running.overwritten
        place = self._place_of_result(running, path)
        if on_meta:
            # What adds such zeros asks tensors without memory for the result's shape (BinaryOps.cpp add_zerotensor).
            place = "meta"
        return self.ledger.allocate(storage, place=place, role=running.role, borrowed=self._borrows(running))

    def _place_of_result(self, running: Running, path: Path) -> Place:
        if self.device.kind == "cpu" or len(path) != 1:
            return running.place
        return places_apart(running.operator.name, running.args).get(path[0], running.place)

    def _borrows(self, running: Running) -> bool:
        """Does an op's result show memory that is not of torch's allocator? On a CUDA job's host all of it counts."""
        if running.operator.name == _ZEROS:
            return True
        return self.device.kind == "cpu" and running.operator.name == _LIFT and is_borrowed(running.args[0])

    def _teaches(self, func: Any, operator: Operator) -> bool:
        """Can an op change what is known, even where nothing is known of its arguments?"""
        return func in TEACHERS or bool(operator.mutated)

    def _seen(self, tensor: torch.Tensor) -> Aside:
        return aside(tensor, self._identity(tensor))

    def _note(self, running: Running, result: Any, writes: list[StorageId]) -> None:
        operator, reads = running.operator, running.reads
        read = tuple([ref.storage for ref in reads if ref.storage is not None])
        unknown = len(read) < len(reads) and operator.name not in NATIVE and operator.sparse is None
        if unknown or is_rough(operator.name, running.args):
            self._note_sparse(operator.name, tensors_in([*running.args, *running.kwargs.values()]))
        moved = 0
        if not operator.is_view:
            made = [self._ref(tensor) for tensor in tensors_in(result)]
            moved = sum([ref.nbytes for ref in (*reads, *made)])
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

    def _note_sparse(self, name: str, tensors: Iterable[torch.Tensor]) -> None:
        """An op works on sparse tensors of which it is not known what its kernel takes, or what it makes of them."""
        if name in self.unknown_sparse:
            return
        self.unknown_sparse[name] = None
        most = _MOST_OF_PARTS * sum(nbytes_of(tensor) for tensor in tensors)
        self.ledger.scratch(0, role="workspace", name=name, most=most)

    # ------------------------------------------------------------------ where tensors are

    def _ref(self, tensor: torch.Tensor) -> Ref:
        ref = pinned(tensor)
        if ref is None:
            return self._stray(tensor)
        # ``parameter.data = …`` exchanges the storage under a tensor, and no op tells of it.
        identity = self._identity(tensor)
        if identity is not None:
            ref.storage = identity
        return ref

    def _stray(self, tensor: torch.Tensor) -> Ref:
        """A tensor that no recorded op made: born in set-up, or inside C++ as an alias of a known storage."""
        storage = storage_of(tensor)
        identity = self._identity(tensor)
        if identity is None and storage is not None:
            identity = self.ledger.allocate(storage, place=self.default_place, role="buffer")
        ref = Ref(self.step_graph.placeholder("stray"), (), identity, nbytes_of(tensor))
        if identity is None:
            self._learn.enter(ref, knowledge_of(tensor))
        pin(tensor, ref)
        return ref

    def _identity(self, tensor: torch.Tensor) -> StorageId | None:
        storage = storage_of(tensor)
        return None if storage is None else self.ledger.find(storage)

    def _place(self, running: Running, operands: Iterable[StorageId | None]) -> Place:
        if self._place_rule is None:
            return self.default_place
        ruled = self._place_rule(running.func, running.args, running.kwargs)
        if ruled is not None:
            return ruled
        entries = self.ledger.entries
        places = {entries[identity].place for identity in operands if identity is not None}
        if "device" in places and len(places) > 1 and self.recording and self._is_mixed(running):
            self.values.assume(f"{MIXED}: {running.operator.name}")
        if "device" in places or not places:
            return "device" if places else self.default_place
        # What is made of pinned tensors is pageable.
        return "meta" if places == {"meta"} else "host"

    def _is_mixed(self, running: Running) -> bool:
        """Does an op work on elements of both places? Copies may, and indices and scalars may lie on the host."""
        if any(part in running.operator.name for part in _MOVERS):
            return False
        operands = tensors_in([*running.args, *running.kwargs.values()])
        return any(tensor.dim() > 0 and self.is_host(tensor) for tensor in operands)
