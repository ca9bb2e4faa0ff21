"""The fake world: a FakeTensorMode in which ordinary model code builds, casts and copies itself."""

import copy
import gc
import itertools
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, reduce
from typing import Any

import torch
from torch.jit.frontend import FrontendError
from torch.utils.data import DataLoader

from memplan.seam.fake import FakeTensor, FakeTensorMode, NestedIntNode
from memplan.seam.modes import device_constructors
from memplan.seam.patches.world import (
    FAKE_TENSOR,
    LOADER_ITERATOR,
    MODULE_APPLY,
    PAD_PACKED_SEQUENCE,
    SWAPS_PARAMETERS,
)
from memplan.seam.replace import Replacement, attribute, replaced
from memplan.seam.tensors import SingleProcessDataLoaderIter, register_builtin
from memplan.tracing.packed_sequences import pad_packed_sequence


@contextmanager
def fake_world() -> Iterator[FakeTensorMode]:
    """Let everything in the context run on fake CPU tensors: shapes and types, no memory and no arithmetic.

    Garbage collection is off meanwhile, so that a free happens where the last reference goes and not at a random later
    moment; what only the collector could free counts as alive, as it does in a training loop between collections.
    """
    with ExitStack() as stack:
        if gc.isenabled():
            gc.collect()
            gc.disable()
            stack.callback(gc.enable)
        stack.enter_context(_quiet())
        # Torch remembers the functions themselves at the first call: that must come before one of them is replaced.
        device_constructors()
        start_autograd()
        stack.enter_context(
            replaced(
                (
                    Replacement(MODULE_APPLY.path, _apply),
                    Replacement(SWAPS_PARAMETERS.path, lambda: False),
                    Replacement(f"{FAKE_TENSOR}.__new__", staticmethod(_new(FakeTensor.__new__))),
                    Replacement(f"{FAKE_TENSOR}.__deepcopy__", _deepcopy),
                    Replacement(f"{FAKE_TENSOR}.__format__", _format),
                    Replacement(f"{FAKE_TENSOR}.get_nested_int", _ragged_size),
                    Replacement(LOADER_ITERATOR.path, iterate_here),
                    Replacement("torch.tensor", _tensor),
                    Replacement(PAD_PACKED_SEQUENCE.path, pad_packed_sequence),
                ),
            )
        )
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        # What is asked again is remembered in ``results``; the mode's own memory costs a fifth of a first call.
        mode.cache_enabled = False
        yield stack.enter_context(mode)


@cache
def start_autograd() -> None:
    """Autograd starts a thread for each GPU at its first backward, and no fork with such threads runs another.

    A fake mode of a CUDA build without a GPU says that there are eight (torch 2.15): the first comes before it, so that
    a small job can still be run in a fork (``rehearsal``).
    """
    with torch.inference_mode(mode=False):
        torch.autograd.backward(torch.zeros((), requires_grad=True))


@contextmanager
def _quiet() -> Iterator[None]:
    """A failing shape function reaches the user as one error; torch would log its whole traceback as well.

    Nor is it a defect of user code to ask how memory is aligned, as transformers' experts do: fake pointers are 0.
    """
    logger = logging.getLogger(FakeTensor.__module__)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor", category=UserWarning)
            yield
    finally:
        logger.setLevel(level)


def _new(make: Callable[..., FakeTensor]) -> Callable[..., torch.Tensor]:
    """A parameter, where a program makes one as accelerate's ``init_empty_weights`` does; else what torch makes.

    They write ``type(parameter)(data, **parameter.__dict__)``, and a fake parameter's class and attributes are others.
    """

    def new(cls: type[FakeTensor], *args: Any, **kwargs: Any) -> torch.Tensor:
        if args and isinstance(args[0], torch.Tensor):
            return torch.nn.Parameter(args[0], requires_grad=kwargs.get("requires_grad", True))
        return make(cls, *args, **kwargs)

    return new


def _apply(self: torch.nn.Module, fn: Callable[..., Any], recurse: bool = True) -> torch.nn.Module:
    """``Module._apply`` for fake parameters.

    The original swaps fake parameters as whole objects, which fails as soon as anything (the fake mode itself) holds a
    weak reference to them. Setting ``.data`` is what it does to real ones.
    """
    if recurse:
        for child in self.children():
            if moves_itself(child, "_apply"):
                child._apply(fn)  # type: ignore[no-untyped-call]
            else:
                _apply(child, fn)
    with torch.no_grad():
        for name, parameter in self._parameters.items():
            if parameter is not None:
                self._parameters[name] = _converted(parameter, fn)
    for name, buffer in self._buffers.items():
        if buffer is not None:
            self._buffers[name] = fn(buffer)
    return self


def moves_itself(module: torch.nn.Module, method: str) -> bool:
    """Does a module move more than its parameters and buffers, by a method of its own (``to``, ``_apply``)?

    Those of torch and of the libraries whose methods only check before they hand on do not count.
    """
    kind = next(kind for kind in type(module).__mro__ if method in vars(kind))
    return kind.__module__.partition(".")[0] not in _HAND_ON


_HAND_ON = frozenset(
    {"memplan", "torch", "transformers", "diffusers", "peft", "accelerate", "bitsandbytes", "deepspeed"}
)


def _converted(parameter: torch.nn.Parameter, fn: Callable[..., Any]) -> torch.nn.Parameter:
    data = fn(parameter)
    if parameter.is_meta or data.is_meta:
        # Onto the meta device, or ``to_empty`` after building there: only a new object can lie elsewhere.
        return torch.nn.Parameter(data, requires_grad=parameter.requires_grad)
    parameter.data = data
    if parameter.grad is not None:
        parameter.grad.data = fn(parameter.grad)
    return parameter


def _deepcopy(tensor: FakeTensor, memo: dict[int, Any]) -> Any:
    """``Tensor.__deepcopy__`` for fake leaves (``nn.TransformerEncoder`` copies its layers; EMA copies a model).

    The original looks for a data pointer, of which fake tensors have none. Of a parameter it copies the elements, of
    any other tensor the whole storage, once for all that share it, and the gradient.
    """
    if id(tensor) in memo:
        return memo[id(tensor)]
    if not tensor.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment."
        )
    if isinstance(tensor, torch.nn.Parameter):
        elements = tensor.detach().clone(memory_format=torch.preserve_format)
        memo[id(tensor)] = torch.nn.Parameter(elements, requires_grad=tensor.requires_grad)
        return memo[id(tensor)]
    duplicate = memo[id(tensor)] = _with_its_storage(tensor.detach(), memo).requires_grad_(tensor.requires_grad)
    if tensor.grad is not None:
        duplicate.grad = copy.deepcopy(tensor.grad, memo)
    return duplicate


def _with_its_storage(tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    """Return a copy of a tensor that has a copy of its whole storage, which ``memo`` holds for the others."""
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_conj() or tensor.is_neg():
        return tensor.clone()
    storage = tensor.untyped_storage()
    if storage.nbytes() % tensor.itemsize:
        return tensor.clone()
    copies = memo.setdefault(id(_with_its_storage), {})
    if storage._cdata not in copies:
        copies[storage._cdata] = tensor.as_strided((storage.nbytes() // tensor.itemsize,), (1,), 0).clone()
    whole: torch.Tensor = copies[storage._cdata].view(tensor.dtype)
    return whole.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _format(tensor: FakeTensor, spec: str) -> str:
    """``Tensor.__format__`` for fake scalars (``f"{loss:.4f}"``); the original knows values of plain tensors only."""
    return format(tensor.item(), spec) if tensor.dim() == 0 and spec else object.__format__(tensor, spec)


_RAGGED = itertools.count()
"""Numbers of ragged dimensions: two nested tensors fit one another where they have the same."""


def _ragged_size(tensor: FakeTensor, *, coeff: int | torch.SymInt = 1) -> torch.SymInt:
    """The size of a nested tensor's ragged dimension, told by its offsets, as plain offsets tell it.

    Fake ones would make a symbol, for which the fake world would have to be one of symbols throughout.
    """
    memo: Any = vars(tensor).get("_memplan_ragged")
    if memo is None:
        make: Any = torch.SymInt
        vars(tensor)["_memplan_ragged"] = memo = make(NestedIntNode(next(_RAGGED), 1))
    size: torch.SymInt = memo * coeff
    return size


_SCRIPT, _TRACE = "torch.jit.script", "torch.jit.trace"
_make_tensor = torch.tensor


@contextmanager
def scripts_run(assume: Callable[[str], None]) -> Iterator[None]:
    """Let a program's functions be compiled by TorchScript, or run as Python where they call what is replaced here.

    Args:
        assume: Told what was not compiled.
    """
    if register_builtin is not None:
        register_builtin(_tensor, "aten::tensor")
    compile_script = attribute(_SCRIPT)

    def as_python(function: Any) -> Any:
        name = getattr(function, "__name__", type(function).__name__)
        assume(f"{name}() runs as Python: TorchScript cannot compile it here")
        return function

    def script(function: Any, *args: Any, **options: Any) -> Any:
        if options.get("_rcb") is not None:
            # It is called by one that is being compiled.
            return compile_script(function, *args, **options)
        try:
            # Names are looked up where the program called, one frame further up.
            return compile_script(function, *args, **options | {"_frames_up": options.get("_frames_up", 0) + 1})
        except (RuntimeError, FrontendError):
            return as_python(function)

    def trace(func: Any, *_: Any, **__: Any) -> Any:
        # Its trace would hold what fake tensors do in the place of the function's own ops.
        return as_python(func)

    with replaced((Replacement(_SCRIPT, script), Replacement(_TRACE, trace))):
        yield


def _tensor(data: Any, **options: Any) -> torch.Tensor:
    """``torch.tensor``, also of a list of fake scalars (scaled rotary frequencies): the original reads their memory."""
    scalars = [each for each in data if isinstance(each, FakeTensor)] if isinstance(data, list | tuple) else []
    if not scalars:
        return _make_tensor(data, **options)
    if len(scalars) == len(data) and options.get("dtype") is None:
        options["dtype"] = reduce(torch.promote_types, (each.dtype for each in scalars))
    return _make_tensor([each.tolist() if isinstance(each, FakeTensor) else each for each in data], **options)


def iterate_here(loader: DataLoader[Any]) -> SingleProcessDataLoaderIter:
    """``DataLoader._get_iterator`` without worker processes: fake tensors cannot leave theirs."""
    loader.num_workers, loader.timeout = 0, 0
    return SingleProcessDataLoaderIter(loader)
