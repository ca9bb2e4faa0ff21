"""Autocast as CUDA does it, for fake CPU tensors: its op lists, its weight cache, the order of its casts.

``torch.autocast("cuda")`` sets the state of CUDA; here every setting goes to the CPU's state as well, so that the
dispatcher enters autocast for fake CPU tensors, and Python kernels do there what ``WrapFunction_`` does for CUDA.
``torch.autocast("cpu")`` means CUDA's too: device-agnostic code reads ``cpu`` off a fake tensor.

Source: aten/src/ATen/autocast_mode.h ``WrapFunction_``, autocast_mode.cpp ``cached_cast`` (torch 2.13; for inference
mode pytorch/pytorch#158232).
"""

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from memplan.seam.dispatcher import Kernel, has_kernel, kernels, overload
from memplan.seam.operators import DispatchKey, DispatchKeySet, ExcludeDispatchKeyGuard, jit_get_all_schemas
from memplan.seam.replace import Replacement, attribute, replaced
from memplan.tracing.cuda import autocast_lists as lists

Args = tuple[Any, ...]
_KEY = "AutocastCPU"
_MIRRORED = ("cuda", "cpu")


@contextlib.contextmanager
def cuda_autocast() -> Iterator[None]:
    """Let autocast on fake CPU tensors be CUDA's."""
    cache = WeightCache()
    former = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    try:
        with replaced(_state_functions(cache)), kernels(_kernels(cache), _KEY):
            torch.set_autocast_dtype("cuda", torch.get_autocast_dtype("cuda"))
            torch.set_autocast_enabled("cuda", torch.is_autocast_enabled("cuda"))
            yield
    finally:
        cache.clear()
        torch.set_autocast_enabled("cpu", former[0])
        torch.set_autocast_dtype("cpu", former[1])


class WeightCache:
    """Low-precision copies of weights, kept until the outermost autocast context ends (``cached_casts``)."""

    def __init__(self) -> None:
        self._copies: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}

    def clear(self) -> None:
        """Drop all copies."""
        self._copies.clear()

    def cast(self, value: Any, dtype: torch.dtype) -> Any:
        """``cached_cast``: tensors and lists of tensors are cast, anything else passes."""
        if isinstance(value, torch.Tensor):
            if not _eligible(value) or value.dtype == dtype:
                return value
            return self._kept(value, dtype) if _cacheable(value, dtype) else value.to(dtype)
        if isinstance(value, list | tuple):
            return [self.cast(item, dtype) for item in value]
        return value

    def _kept(self, weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        kept = self._copies.get(id(weight))
        if kept is None or kept[0]() is not weight:
            kept = weakref.ref(weight), weight.to(dtype)
            self._copies[id(weight)] = kept
        return kept[1]


def _eligible(tensor: torch.Tensor) -> bool:
    """``is_eligible``; any fake tensor counts as a CUDA tensor."""
    return tensor.is_floating_point() and tensor.dtype != torch.float64


def _cacheable(tensor: torch.Tensor, dtype: torch.dtype) -> bool:
    return (
        dtype == torch.get_autocast_dtype("cuda")
        and tensor.dtype == torch.float32
        and tensor.requires_grad
        and tensor.is_leaf
        and not tensor._is_view()
        and torch.is_autocast_cache_enabled()
        and not torch.is_inference_mode_enabled()
    )


def _kernels(cache: WeightCache) -> dict[str, Kernel]:
    """A kernel for every op that this torch autocasts on CUDA; what only the CPU autocasts falls through."""
    table: dict[str, Kernel] = dict.fromkeys(_autocast_by("AutocastCPU"), torch.library.fallthrough_kernel)
    low = _casting(cache, lambda _: torch.get_autocast_dtype("cuda"))
    full = _casting(cache, lambda _: torch.float32)
    promoting = _casting(cache, _widest)
    makers: list[tuple[Sequence[str], Callable[[str], Kernel]]] = [
        (lists.LOWER_PRECISION, low),
        (lists.FP32, full),
        (lists.PROMOTE, promoting),
        (lists.FP32_SET_OPT_DTYPE, _setting_dtype),
        (tuple(lists.FP32_APPEND_DTYPE), _appending_dtype),
        (lists.BANNED, _banned),
    ]
    here = _autocast_by("AutocastCUDA")
    for names, make in makers:
        table.update({name: make(name) for name in names if name in here})
    return table


@functools.cache
def _autocast_by(key: str) -> frozenset[str]:
    """Aten ops that this torch itself has a kernel for at a dispatch key; first asked before any is replaced."""
    names = (
        schema.name.removeprefix("aten::") + (f".{schema.overload_name}" if schema.overload_name else "")
        for schema in jit_get_all_schemas()
        if schema.name.startswith("aten::")
    )
    return frozenset(name for name in names if has_kernel(name, key))


def _without_autocast() -> contextlib.AbstractContextManager[None]:
    """``ExcludeDispatchKeyGuard no_autocast``."""
    guard: contextlib.AbstractContextManager[None] = ExcludeDispatchKeyGuard(DispatchKeySet(DispatchKey.AutocastCPU))
    return guard


def _casting(cache: WeightCache, target: Callable[[Args], torch.dtype]) -> Callable[[str], Kernel]:
    """Kernels that cast all arguments: to the low dtype, to fp32, or to the widest."""

    def make(name: str) -> Kernel:
        op = overload(name)

        def kernel(*args: Any, **kwargs: Any) -> Any:
            with _without_autocast():
                return _call(op, args, kwargs, cache, target((*args, *kwargs.values())))

        return kernel

    return make


def _call(op: Kernel, args: Args, kwargs: Mapping[str, Any], cache: WeightCache, dtype: torch.dtype) -> Any:
    """Cast, call, free: GCC evaluates the argument pack right to left; its temporaries die left to right."""
    names = list(kwargs)
    casts: list[Any] = [None] * (len(args) + len(names))
    values = [*args, *kwargs.values()]
    for index in range(len(values) - 1, -1, -1):
        casts[index] = cache.cast(values[index], dtype)
    result = op(*casts[: len(args)], **dict(zip(names, casts[len(args) :], strict=True)))
    for index, value in enumerate(casts):
        casts[index] = None
        if isinstance(value, list):
            # A list's temporaries die front to back.
            for position in range(len(value)):
                value[position] = None
        del value
    return result


def _widest(values: Args) -> torch.dtype:
    """``promote_type``."""
    tensors = [item for value in values for item in (value if isinstance(value, list | tuple) else (value,))]
    dtypes = {tensor.dtype for tensor in tensors if isinstance(tensor, torch.Tensor) and _eligible(tensor)}
    return torch.float32 if torch.float32 in dtypes else torch.get_autocast_dtype("cuda")


def _setting_dtype(name: str) -> Kernel:
    """``fp32_set_opt_dtype``."""
    op = overload(name)
    position = [argument.name for argument in op._schema.arguments].index("dtype")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with _without_autocast():
            if not _eligible(args[0]):
                return op(*args, **kwargs)
            if position < len(args):
                return op(*args[:position], args[position] or torch.float32, *args[position + 1 :], **kwargs)
            return op(*args, **{**kwargs, "dtype": kwargs.get("dtype") or torch.float32})

    return kernel


def _appending_dtype(name: str) -> Kernel:
    """``fp32_append_dtype``."""
    op = overload(lists.FP32_APPEND_DTYPE[name])
    arguments = overload(name)._schema.arguments

    def kernel(*args: Any) -> Any:
        with _without_autocast():
            defaults = [argument.default_value for argument in arguments[len(args) :]]
            dtype = torch.float32 if _eligible(args[0]) else args[0].dtype
            return op(*args, *defaults, dtype=dtype)

    return kernel


def _banned(name: str) -> Kernel:
    def kernel(*_: Any, **__: Any) -> Any:
        raise RuntimeError(
            f"{name} is unsafe to autocast: torch refuses it on CUDA; use binary_cross_entropy_with_logits instead."
        )

    return kernel


def _state_functions(cache: WeightCache) -> tuple[Replacement, ...]:
    """Torch's setters of autocast state, each setting both devices, and the end of the weight cache."""
    set_enabled, set_dtype, clear = (
        attribute(f"torch.{name}") for name in ("set_autocast_enabled", "set_autocast_dtype", "clear_autocast_cache")
    )

    def set_autocast_enabled(*args: Any) -> None:
        # The old form, without a device, means CUDA.
        device, enabled = args if len(args) == 2 else ("cuda", args[0])
        for each in _MIRRORED if device in _MIRRORED else (device,):
            set_enabled(each, enabled)

    def set_autocast_dtype(device: str, dtype: torch.dtype) -> None:
        for each in _MIRRORED if device in _MIRRORED else (device,):
            set_dtype(each, dtype)

    def clear_autocast_cache() -> None:
        cache.clear()
        clear()

    return (
        Replacement("torch.set_autocast_enabled", set_autocast_enabled),
        Replacement("torch.set_autocast_cpu_enabled", set_autocast_enabled),
        Replacement("torch.set_autocast_dtype", set_autocast_dtype),
        Replacement("torch.set_autocast_gpu_dtype", lambda dtype: set_autocast_dtype("cuda", dtype)),
        Replacement("torch.set_autocast_cpu_dtype", lambda dtype: set_autocast_dtype("cpu", dtype)),
        Replacement("torch.clear_autocast_cache", clear_autocast_cache),
    )
