"""The fake world: a FakeTensorMode in which ordinary model code builds, casts and copies itself."""

import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode


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
        stack.enter_context(_module_casts())
        stack.enter_context(_parameter_copies())
        yield stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))


@contextmanager
def _quiet() -> Iterator[None]:
    """Failures of shape functions reach the user as one error; torch would log each with its whole traceback as well."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def _module_casts() -> Iterator[None]:
    """Let ``module.to(...)`` work on fake parameters.

    ``Module._apply`` swaps fake parameters as whole objects, which fails as soon as anything (the fake mode itself) holds
    a weak reference to them. Setting ``.data`` is what it does to real ones.
    """
    original = torch.nn.Module._apply

    def apply(self: torch.nn.Module, fn: Callable[..., Any], recurse: bool = True) -> torch.nn.Module:
        if recurse:
            for child in self.children():
                child._apply(fn)
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                if parameter is None:
                    continue
                if parameter.is_meta:
                    # ``to_empty`` after building on the meta device: only a new object can lie elsewhere.
                    self._parameters[name] = torch.nn.Parameter(fn(parameter), requires_grad=parameter.requires_grad)
                else:
                    parameter.data = fn(parameter)
                if parameter.grad is not None:
                    parameter.grad.data = fn(parameter.grad)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    torch.nn.Module._apply = apply  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.nn.Module._apply = original  # type: ignore[method-assign]


@contextmanager
def _parameter_copies() -> Iterator[None]:
    """Let ``copy.deepcopy`` copy fake leaves (``nn.TransformerEncoder`` copies its layers; EMA copies a model).

    ``Tensor.__deepcopy__`` looks for a data pointer, of which fake tensors have none.
    """

    def deepcopy(tensor: FakeTensor, memo: dict[int, Any]) -> Any:
        if id(tensor) in memo:
            return memo[id(tensor)]
        duplicate: Any = tensor.detach().clone(memory_format=torch.preserve_format)
        if isinstance(tensor, torch.nn.Parameter):
            duplicate = torch.nn.Parameter(duplicate, requires_grad=tensor.requires_grad)
        else:
            duplicate.requires_grad_(tensor.requires_grad)
        memo[id(tensor)] = duplicate
        return duplicate

    original = FakeTensor.__dict__.get("__deepcopy__")
    FakeTensor.__deepcopy__ = deepcopy
    try:
        yield
    finally:
        if original is None:
            del FakeTensor.__deepcopy__
        else:
            FakeTensor.__deepcopy__ = original
