"""A compiled region: what stands where a compiled module or function is called."""

import functools
from collections.abc import Callable
from contextlib import nullcontext
from traceback import clear_frames
from typing import Any, NamedTuple

import torch
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from memplan.seam.find import SeamError
from memplan.tracing.inductor.capture import Flat, captured, inside_capture, rehearsed, stand_ins
from memplan.tracing.inductor.lifting import exchanged, modules_of, tensors_of
from memplan.tracing.inductor.lowering import Compiler
from memplan.tracing.inductor.pieces import BETWEEN, BUCKETS, breaks, compile_pieces
from memplan.tracing.inductor.structure import TensorSlot, described, emptied, filled, stateful
from memplan.tracing.recorder import Recorder
from memplan.tracing.records import DeviceTraits

MOST_CODES = 8
"""Compilations of one region (torch/_dynamo/config.py ``recompile_limit``): after them Dynamo leaves it eager too."""
RECURRENT = "Dynamo breaks graphs at recurrent layers"
"""torch/_dynamo/config.py ``allow_rnn``: they run as eager code between two graphs."""

Note = Callable[[str], None]
"""Takes a sentence for the report."""


class CompiledCode(NamedTuple):
    """What a call has been compiled to."""

    run: Flat
    """Tensors to tensors."""
    order: tuple[int, ...]
    """Positions of its inputs among the call's tensors."""
    result: Any
    """What the call returns, with slots for tensors: first those of the call, then those that the code returns."""
    states: list[dict[str, Any]]
    """What it leaves in the objects among its arguments, likewise."""


class Regions:
    """All compiled regions of a trace.

    ``note`` takes a sentence on what could not be compiled.
    """

    def __init__(self, recorder: Recorder, note: Note, compiler: Compiler) -> None:
        self._recorder, self._note, self._compiler = recorder, note, compiler
        self._compiling = False
        self.called = False
        """Has any region been called?"""
        self._taken_apart: dict[int, torch.nn.Module] = {}

    def region(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """What to call instead of a function, or of a module's ``_call_impl``."""
        known: dict[Any, CompiledCode | None] = {}
        owner = getattr(function, "__self__", None) if getattr(function, "__name__", "") == "_call_impl" else None

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._compiling:
                # What is compiled inside of a compiled region is a part of it.
                return function(*args, **kwargs)
            self.called = True
            if isinstance(owner, torch.nn.Module):
                self._recorder.before_compiled(owner)
            if isinstance(owner, torch.nn.Module) and breaks(owner):
                return self._piecewise(owner)(*args, **kwargs)
            taken = TakenCall(modules_of(function, args), args, kwargs)
            if taken.key not in known and len(known) < MOST_CODES:
                known[taken.key] = self._compile(function, taken)
            if taken.key not in known:
                self._note(f"torch.compile: {_name(function)} was traced as eager after {MOST_CODES} shapes")
            code = known.get(taken.key)
            if code is None:
                return function(*args, **kwargs)
            with self._recorder.attribution.within(taken.modules[0]) if taken.modules else nullcontext():
                results = code.run(*[taken.tensors[index] for index in code.order])
            tensors = [*taken.tensors, *results]
            for given, state in zip(stateful((args, kwargs)), code.states, strict=True):
                vars(given).update(filled(state, tensors))
            return filled(code.result, tensors)

        return call

    def _piecewise(self, module: torch.nn.Module) -> Callable[..., Any]:
        """The call of a module that graphs break in: as it is written, its pieces compiled."""
        if id(module) not in self._taken_apart:
            self._taken_apart[id(module)] = module
            if compile_pieces(module, self.region):
                self._note(BETWEEN)
            if any(isinstance(each, DistributedDataParallel) for each in module.modules()):
                self._note(BUCKETS)
        return module._call_impl

    def _compile(self, function: Callable[..., Any], taken: "TakenCall") -> CompiledCode | None:
        """The code of a call; None where it has to run as eager code."""
        place = self._recorder.references.default_place
        # What stands for the call's tensors is unknown to the recorder, and lies on the device as they do.
        self._compiling, self._recorder.references.default_place = True, "device"
        try:
            return _code(function, taken, self._recorder.device, self._compiler)
        except SeamError:
            # No refusal of the compiler's: what eager code takes would be told as what compiled code does.
            raise
        except Exception as error:  # noqa: BLE001 - Whatever stops the compiler, the step itself may run.
            self._note(f"torch.compile: {_name(function)} was traced as eager: {_reason(error)}")
            # Frames that an error keeps would keep the call's tensors, and no garbage is collected in a trace.
            clear_frames(error.__traceback__)
            return None
        finally:
            self._compiling, self._recorder.references.default_place = False, place


class TakenCall:
    """A call taken apart."""

    def __init__(self, modules: list[torch.nn.Module], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.modules = modules
        self.tensors = tensors_of(modules)
        self._index = {id(tensor): index for index, tensor in enumerate(self.tensors)}
        self.args, self.kwargs = args, kwargs
        self.empty = emptied((args, kwargs), self.slot)
        self.key = (
            described(self.empty),
            tuple((tuple(each.shape), each.stride(), each.dtype, each.requires_grad) for each in self.tensors),
            # How ranks share each.
            tuple((each.device_mesh, each.placements) if isinstance(each, DTensor) else None for each in self.tensors),
            tuple(module.training for root in modules for module in root.modules()),
            _state(),
        )

    def slot(self, tensor: torch.Tensor) -> TensorSlot:
        """The slot of a tensor, which has one from here on."""
        if id(tensor) not in self._index:
            self._index[id(tensor)] = len(self.tensors)
            self.tensors.append(tensor)
        return TensorSlot(self._index[id(tensor)])


def _state() -> tuple[Any, ...]:
    """What else decides what a call runs."""
    kinds = ("cuda", "cpu")
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        *(torch.is_autocast_enabled(kind) for kind in kinds),
        *(torch.get_autocast_dtype(kind) for kind in kinds),
    )


def _code(function: Callable[..., Any], taken: TakenCall, device: DeviceTraits, compiler: Compiler) -> CompiledCode:
    """Compile a call. Tensors are given in order of their first use, as Dynamo finds them."""
    if any(isinstance(each, torch.nn.RNNBase) for root in taken.modules for each in root.modules()):
        raise TypeError(RECURRENT)
    result, states = None, []
    # Compiled code keeps this function for good, so it must not keep the call's tensors: their ids will do, since the
    # caller holds them while it is traced.
    empty, modules, ids = taken.empty, taken.modules, [id(tensor) for tensor in taken.tensors]
    likes = stand_ins(taken.tensors)
    order = list(range(len(likes)))

    def flat(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        nonlocal result, states
        given = dict(zip(order, inputs, strict=True))
        # What is not used is not there: Dynamo takes no such input.
        tensors = [given.get(index, like) for index, like in enumerate(likes)]
        args, kwargs = filled(empty, tensors)
        with exchanged(modules, dict(zip(ids, tensors, strict=True))), inside_capture():
            returned = function(*args, **kwargs)
        known = {id(tensor): index for index, tensor in enumerate(tensors)}
        results: list[torch.Tensor] = []

        def slot(tensor: torch.Tensor) -> TensorSlot:
            if id(tensor) not in known:
                known[id(tensor)] = len(tensors) + len(results)
                results.append(tensor)
            return TensorSlot(known[id(tensor)])

        result = emptied(returned, slot)
        states = [emptied(vars(each), slot) for each in stateful((args, kwargs))]
        return tuple(results)

    used, results = rehearsed(flat, likes)
    order = used
    run = captured(flat, [likes[index] for index in order], results, device, compiler)
    return CompiledCode(run, tuple(order), result, states)


def _name(function: Callable[..., Any]) -> str:
    owner = getattr(function, "__self__", None)
    return type(owner).__name__ if isinstance(owner, torch.nn.Module) else function.__qualname__


def _reason(error: Exception) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:200]
