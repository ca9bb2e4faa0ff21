"""The recorder: one dispatch mode above the fake mode that writes down every op and every storage of a running step.

Each op becomes a node of a graph with its owner, phase, FLOPs and bytes; each new storage an allocation in the ledger.
What a dispatch mode changes about the run it watches is put right (``overwriting``). What it cannot see, the scratch
of kernels, comes from a table of rules (``scratch``); values that fake tensors do not have, from ``values``.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from memplan.seam.autograd import current_autograd_node, current_graph_task_id
from memplan.seam.dispatcher import decompose
from memplan.seam.fake import FakeTensor
from memplan.seam.modes import DisableTorchFunction, TorchDispatchMode, get_current_dispatch_mode_stack
from memplan.tracing import random_states
from memplan.tracing.attribution import Attribution
from memplan.tracing.calls import Operator, describe
from memplan.tracing.draws import DRAWS
from memplan.tracing.entering import EnteredResults
from memplan.tracing.formulas import Formulas
from memplan.tracing.host_ops import HostOps, reads
from memplan.tracing.knowledge import NOTHING
from memplan.tracing.learning import Learning
from memplan.tracing.ledger import Ledger
from memplan.tracing.nested import leaves_of, tensors_in
from memplan.tracing.op_log import OpLog
from memplan.tracing.overwriting import Overwriting
from memplan.tracing.placing import PlaceRule, Placing
from memplan.tracing.records import DeviceTraits, Role, Turn
from memplan.tracing.references import References
from memplan.tracing.refs import PLAIN, is_on_meta, is_wrapper, knowledge_of, storage_of
from memplan.tracing.running import Running
from memplan.tracing.scratch.player import ScratchPlayer
from memplan.tracing.scratch.rules import RuleTable, Script
from memplan.tracing.sparse.parts import any_sparse
from memplan.tracing.sparse.table import ALWAYS, BODIES, Body
from memplan.tracing.values import TEACHERS, Values

_TO = "aten._to_copy.default"
_ASK_DEVICE = torch.ops.prim.device.default


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
        self.now = ""
        """Name of the op that runs now; of the one that failed, after an error."""
        self.recording = False
        """Do ops go to the graph? In set-up only storages are followed."""
        self.host_is_real = False
        """Are ops on real tensors run for real, where their results stay on the host?"""
        self.host_ops = HostOps(values)
        """Runs them."""
        self.role_of_copies: Role = "intermediate"
        """What tensors are that are copied from the host to the device."""
        self.user_code: Callable[[], AbstractContextManager[object]] = nullcontext
        """The context of user code that runs inside an operator."""
        self.before_compiled: Callable[[torch.nn.Module], None] = lambda _: None
        """Told of a module whose compiled call comes, while it still holds its own parameters."""
        self._rules = rules
        self._bodies = bodies
        self._operators: dict[Any, Operator] = {}
        self._muted = 0
        self._formulas = Formulas(self.ledger, values.assume, device.kind)
        self._learn = Learning(values)
        self.references = References(self.ledger, self._learn)
        """Of all tensors that it meets."""
        self.log = OpLog(self.ledger, self.references)
        """The ops of the steps."""
        self.turns: list[Turn] = []
        """Those among them that stand for more."""
        self.ops = self.log.ops
        self.step_graph = self.references.step_graph
        self._placing = Placing(device, place_rule, self.references, self.ledger, values)
        self._overwriting = Overwriting(self.references, self.ledger, self.ops)
        self._player = ScratchPlayer(self.ledger, device, self.references.is_host, values.decisions.heard)
        self._results = EnteredResults(self.ledger, self.references, self._placing, self._player, self.log)
        values.knowledge_of = knowledge_of

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

    # ------------------------------------------------------------------ the hot path

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Write one op down and run it on the fake tensors."""
        if func is _ASK_DEVICE and type(args[0]) is FakeTensor:
            self._overwriting.asked_device = id(args[0])
            return args[0].fake_device
        for kind in types:
            if kind not in PLAIN and not issubclass(kind, FakeTensor):
                # A wrapper subclass (DTensor …): let it desugar, its inner ops come back here.
                return NotImplemented
        kwargs = _unnumbered(kwargs or {})
        if self._muted:
            return func(*args, **kwargs)
        if self.host_is_real and self._stays_real(func, args, kwargs):
            return self.host_ops.run(func, args, kwargs)
        if self.host_is_real and func in DRAWS and self._placing.is_for_host(func, args, kwargs):
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
                self.log.add_sparse(operator.name, tensors_in(args))
            with DisableTorchFunction(), self:
                return operator.sparse(self.values, func, args, kwargs)
        return NotImplemented

    def _stays_real(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Is an op one of the host's own, on tensors with data?"""
        tensors = tensors_in([*args, *kwargs.values()])
        if not tensors or any(isinstance(tensor, FakeTensor) or is_wrapper(tensor) for tensor in tensors):
            return False
        return reads(func) or self._placing.is_for_host(func, args, kwargs)

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
        self._overwriting.asked_device = 0
        result = self.values.run(running.func, running.args, running.kwargs)
        tensors = tensors_in([*running.args, *running.kwargs.values()])
        operands = (self.references.storage(tensor) for tensor in tensors)
        running.place = self._placing.of_op(running, operands, recording=False)
        # Of a GPU's kernels only what lives beyond set-up counts; on the CPU a batch is made where the step runs.
        if running.place == "device" and running.operator.name == _TO and self.references.is_host(running.args[0]):
            running.role = self.role_of_copies
        script = self._player.script(running, result) if self.device.kind == "cpu" else Script()
        self._player.play(script.before)
        for path, tensor in leaves_of(result):
            storage = storage_of(tensor)
            if storage is not None and self.ledger.find(storage) is None:
                place = "meta" if is_on_meta(tensor) else self._placing.of_result(running, path)
                borrowed = self._placing.borrows(running)
                self.ledger.allocate(storage, place=place, role=running.role, borrowed=borrowed)
        self._player.play(script.after)
        self._player.end()
        if self._teaches(running.func, running.operator) or any(
            knowledge_of(tensor) is not NOTHING for tensor in tensors
        ):
            beside = self.references.beside
            reads = [beside(tensor) for tensor in tensors]
            self._learn(
                running.func, running.operator, running.args, running.kwargs, result=result, reads=reads, of=beside
            )
        return result

    def _record(self, running: Running) -> Any:
        operator, args, kwargs = running.operator, running.args, running.kwargs
        self._attribute(running)
        self.ledger.op, self.now = len(self.ops), operator.name
        node_args, node_kwargs = self.step_graph.arguments(args, kwargs, running.reads)
        result = None if operator.is_silent else self._formulas.laid_out(self.values.run(running.func, args, kwargs))
        running.node = self.step_graph.call(running.func, node_args, node_kwargs)
        running.place = self._placing.of_op(running, (ref.storage for ref in running.reads), recording=True)
        if running.place == "device" and operator.name == _TO and self.references.is_host(args[0]):
            running.role = self.role_of_copies
        script = self._player.script(running, result)
        self._player.play(script.before)
        writes = self._results.enter(running, result, script)
        self._player.play(script.after)
        self._player.end()
        if self._teaches(running.func, operator) or any(ref.knowledge is not NOTHING for ref in running.reads):
            self._learn(running.func, operator, args, kwargs, result=result, reads=running.reads, of=self.references.of)
        self.log.add(running, result, writes)
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
        if running.in_backward and node is not None and node.name() == "torch::autograd::AccumulateGrad":
            running.role = "gradient"
        running.overwritten = self._overwriting.storage(running, node)

    def _teaches(self, func: Any, operator: Operator) -> bool:
        """Can an op change what is known, even where nothing is known of its arguments?"""
        return func in TEACHERS or bool(operator.mutated)


def _unnumbered(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments of an op whose device is the CPU without a number, which real tensors have none of.

    Launchers of several ranks place tensors on ``cpu:1``; fake ones would keep the number, and mix with no others.
    """
    device = kwargs.get("device")
    if device is None or device.index is None or device.type != "cpu":
        return kwargs
    return {**kwargs, "device": torch.device("cpu")}
