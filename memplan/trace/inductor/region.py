"""A compiled region: what stands where a compiled module or function is called."""

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch

from memplan.trace.inductor.capture import Flat, captured, inside_capture, rehearsed, stand_ins
from memplan.trace.inductor.lifting import exchanged, modules_of, tensors_of
from memplan.trace.inductor.structure import Slot, described, emptied, filled, stateful
from memplan.trace.recorder import Recorder
from memplan.trace.records import DeviceTraits

Note = Callable[[str], None]
"""Takes a sentence for the report."""


class Code(NamedTuple):
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

    Args:
        recorder: Records what their code allocates.
        note: Takes a sentence on what could not be compiled.
    """

    def __init__(self, recorder: Recorder, note: Note) -> None:
        self._recorder, self._note = recorder, note
        self._compiling = False

    def region(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """What to call instead of a function, or of a module's ``_call_impl``."""
        known: dict[Any, Code | None] = {}

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._compiling:
                # What is compiled inside of a compiled region is a part of it.
                return function(*args, **kwargs)
            taken = Taken(modules_of(function, args), args, kwargs)
            if taken.key not in known:
                known[taken.key] = self._compile(function, taken)
            code = known[taken.key]
            if code is None:
                return function(*args, **kwargs)
            with self._recorder.attribution.within(taken.modules[0]) if taken.modules else nullcontext():
                results = code.run(*[taken.tensors[index] for index in code.order])
            tensors = [*taken.tensors, *results]
            for given, state in zip(stateful((args, kwargs)), code.states, strict=True):
                vars(given).update(filled(state, tensors))
            return filled(code.result, tensors)

        return call

    def _compile(self, function: Callable[..., Any], taken: "Taken") -> Code | None:
        """The code of a call; None where it has to run as eager code."""
        place = self._recorder.default_place
        # What stands for the call's tensors is unknown to the recorder, and lies on the device as they do.
        self._compiling, self._recorder.default_place = True, "device"
        try:
            return _code(function, taken, self._recorder.device)
        except Exception as error:  # noqa: BLE001 - Whatever stops the compiler, the step itself may run.
            self._note(f"torch.compile: {_name(function)} was traced as eager: {_reason(error)}")
            return None
        finally:
            self._compiling, self._recorder.default_place = False, place


class Taken:
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
            tuple(module.training for root in modules for module in root.modules()),
            _state(),
        )

    def slot(self, tensor: torch.Tensor) -> Slot:
        """The slot of a tensor, which has one from here on."""
        if id(tensor) not in self._index:
            self._index[id(tensor)] = len(self.tensors)
            self.tensors.append(tensor)
        return Slot(self._index[id(tensor)])


def _state() -> tuple[Any, ...]:
    """What else decides what a call runs."""
    kinds = ("cuda", "cpu")
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        *(torch.is_autocast_enabled(kind) for kind in kinds),
        *(torch.get_autocast_dtype(kind) for kind in kinds),
    )


def _code(function: Callable[..., Any], taken: Taken, device: DeviceTraits) -> Code:
    """Compile a call. Tensors are given in order of their first use, as Dynamo finds them."""
    result, states = None, []
    order = list(range(len(taken.tensors)))

    def flat(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        nonlocal result, states
        given = dict(zip(order, inputs, strict=True))
        # What is not used is not there: Dynamo takes no such input.
        tensors = [given.get(index, tensor) for index, tensor in enumerate(taken.tensors)]
        args, kwargs = filled(taken.empty, tensors)
        # The call's tensors live in ``taken``: they are known by their ids.
        others = {id(tensor): tensors[index] for index, tensor in enumerate(taken.tensors)}
        with exchanged(taken.modules, others), inside_capture():
            returned = function(*args, **kwargs)
        known = {id(tensor): index for index, tensor in enumerate(tensors)}
        results: list[torch.Tensor] = []

        def slot(tensor: torch.Tensor) -> Slot:
            if id(tensor) not in known:
                known[id(tensor)] = len(tensors) + len(results)
                results.append(tensor)
            return Slot(known[id(tensor)])

        result = emptied(returned, slot)
        states = [emptied(vars(each), slot) for each in stateful((args, kwargs))]
        return tuple(results)

    tensors = stand_ins(taken.tensors)
    used, results = rehearsed(flat, tensors)
    order = used
    run = captured(flat, [tensors[index] for index in order], results, device)
    return Code(run, tuple(order), result, states)


def _name(function: Callable[..., Any]) -> str:
    owner = getattr(function, "__self__", None)
    return type(owner).__name__ if isinstance(owner, torch.nn.Module) else function.__qualname__


def _reason(error: Exception) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:200]
