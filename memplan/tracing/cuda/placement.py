"""Device or host: where a new tensor of a fake CPU trace would lie on a CUDA machine.

At dispatch level every fake tensor says ``cpu``. What tells them apart is what Python asked for, so a torch function
mode reads and rewrites device arguments on their way in: ``cuda`` becomes ``cpu`` and the request is kept for whoever
records allocations.

Rules: an explicit device is meant, ``x.device`` included, which says ``cuda`` where it would (``told_device``); a
factory without a device makes a host tensor; anything else lies where its operands lie, on the device if any does.
"""

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from memplan.seam import modes
from memplan.seam.modes import DeviceContext, device_constructors, get_current_function_mode_stack
from memplan.seam.patches.cuda import RUN_BACKWARD
from memplan.seam.replace import Replacement, attribute, replaced
from memplan.seam.tensors import TensorBase, parse_to
from memplan.tracing.cuda.legacy_types import legacy_type, type_name
from memplan.tracing.cuda.told_device import telling, told
from memplan.tracing.nested import tensors_in
from memplan.tracing.records import Place

Args = tuple[Any, ...]
Function = Callable[..., Any]
Handler = Callable[[Args, dict[str, Any]], Any]

_CPU = torch.device("cpu")
_PLACES: Mapping[str, Place] = {"cpu": "host", "meta": "meta"}
"""Type of a device → place; all others are accelerators."""
_DEVICE_OPTIONS = frozenset({"device", "pin_memory"})
"""Keywords of factories that say where."""
_HOST_ONLY: tuple[Function, ...] = (torch.from_numpy, torch.frombuffer)
"""Factories that know no device argument."""


class Placement:
    """What the running Python call asks for, and the places of the tensors made before."""

    def __init__(self) -> None:
        self.asked: Place | None = None
        """The place that the torch call now running asks for; None: nothing was asked."""
        self.default: Place = "host"
        """Place of a factory call without a device; ``device`` while a model is built that will be moved there."""
        self.is_host: Callable[[torch.Tensor], bool] = _nowhere
        """Does this tensor lie on the host? Set by whoever records allocations."""
        self.is_pinned: Callable[[torch.Tensor], bool] = _nowhere
        """Is its memory page-locked? Set likewise."""
        self.read: Callable[[torch.Tensor], object] = _nowhere
        """Told of every tensor with data that becomes a list or an array, past the dispatcher. Set likewise."""
        self.user_code: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
        """The context in which device arguments are read, for code that is called back from inside a torch call."""

    def told(self, tensor: torch.Tensor, device: torch.device) -> torch.device:
        """What Python code is told of a tensor that lies on this device of the trace."""
        return told(tensor, device, self.is_host)

    def rule(self, func: object, args: Args, kwargs: Mapping[str, Any]) -> Place | None:
        """Where the new storages of the op now dispatched lie.

        None: where its tensor arguments lie, on the device if any does.
        """
        del func
        if self.asked is not None:
            return self.asked
        tensors = tensors_in([*args, *kwargs.values()])
        # What neither Python asked for nor tensors decide is made inside C++: autograd's zeros, an attention mask. The
        # parts of a sparse tensor are seen when they are asked for; its own place nobody knows.
        is_told = tensors and all(tensor.layout is torch.strided for tensor in tensors)
        return None if is_told else "device"

    @contextlib.contextmanager
    def asking(self, place: Place | None) -> Iterator[None]:
        """While a call runs, its allocations lie there."""
        former, self.asked = self.asked, place
        try:
            yield
        finally:
            self.asked = former


def _nowhere(_: torch.Tensor) -> bool:
    return False


def place_named(device: object) -> Place:
    """The place that a ``device=`` argument names: a string, ``torch.device`` or index."""
    return _PLACES.get(_type_named(device), "device")


def _type_named(device: object) -> str:
    match device:
        case torch.device():
            return device.type
        case str():
            return device.partition(":")[0]
        case _:
            return "cuda"


def _device_of(args: Args, kwargs: dict[str, Any]) -> torch.device:
    """``torch.device``; a number alone means the accelerator, which the trace's torch has none of."""
    if len(args) == 1 and not kwargs:
        args = (_device_numbered(args[0]),)
    return torch.device(*args, **kwargs)


def _device_numbered(value: object) -> object:
    """What a number alone means where a device may stand: the accelerator of that number."""
    return torch.device("cuda", value) if isinstance(value, int) and not isinstance(value, bool) else value


def _parse_to(args: Args, kwargs: dict[str, Any]) -> Any:
    parse: Function = parse_to
    return parse(*map(_device_numbered, args), **{name: _device_numbered(value) for name, value in kwargs.items()})


def _is_meta(device: object) -> bool:
    return _type_named(device) == "meta"


def _put_by_context() -> bool:
    """Did ``with torch.device(...)`` put the device into this call of a factory? Then that is who calls the mode."""
    return sys._getframe(3).f_code is DeviceContext.__torch_function__.__code__


@contextlib.contextmanager
def device_rewriting(placement: Placement) -> Iterator[None]:
    """Let code that names CUDA devices run on fake CPU tensors, forward and backward.

    The placement is told what each call asks for.
    """
    mode = DeviceRewriting(placement)

    def user_code() -> contextlib.AbstractContextManager[object]:
        active = mode in get_current_function_mode_stack()  # type: ignore[no-untyped-call]
        return contextlib.nullcontext() if active else mode

    def armed(function: Function) -> Function:
        # A call that goes through the mode runs without it. User code that autograd calls back from there (hooks,
        # recomputed blocks, packing of saved tensors) must find it on again.
        def call(*args: Any, **kwargs: Any) -> Any:
            with user_code():
                return function(*args, **kwargs)

        return call

    placement.user_code = user_code
    saving = torch.autograd.graph.saved_tensors_hooks
    start = saving.__init__

    def start_saving(hooks: Any, pack_hook: Function, unpack_hook: Function) -> None:
        start(hooks, armed(pack_hook), armed(unpack_hook))

    def set_default_tensor_type(named: Any) -> None:
        kind = legacy_type(named)
        if kind is None:
            set_type(named)
            return
        torch.set_default_dtype(kind.dtype)
        placement.default = "device" if kind.is_cuda else "host"

    set_type = torch.set_default_tensor_type
    table = (
        Replacement("torch.set_default_tensor_type", set_default_tensor_type),
        Replacement(RUN_BACKWARD.path, armed(attribute(RUN_BACKWARD.path))),
        Replacement("torch.autograd.graph.saved_tensors_hooks.__init__", start_saving),
    )
    with replaced((*table, *telling(placement.told))), mode:
        yield


class DeviceRewriting(TorchFunctionMode):
    """Lets code that names CUDA devices run on fake CPU tensors.

    The placement is told what each call asks for.
    """

    def __init__(self, placement: Placement) -> None:
        super().__init__()
        self._placement = placement
        self._factories = frozenset((*device_constructors(), *_HOST_ONLY))
        tensor = torch.Tensor
        # Getters are slot wrappers: a new object at every access, but equal and of equal hash.
        self._handlers: dict[Function, Handler] = {
            tensor.to: self._to,
            tensor.cuda: self._cuda,
            tensor.cpu: self._cpu,
            tensor.pin_memory: self._pin_memory,
            tensor.is_pinned: lambda args, _: placement.is_pinned(args[0]),
            tensor.get_device: lambda args, _: -1 if placement.is_host(args[0]) else 0,
            # Asked only of what is no fake tensor, such as the wrappers of ``torch.func``.
            _getter("device"): lambda args, _: placement.told(args[0], args[0].device),
            _getter("is_cuda"): lambda args, _: not placement.is_host(args[0]),
            _getter("is_cpu"): lambda args, _: placement.is_host(args[0]),
            torch.as_tensor: self._as_tensor,
            torch.device: _device_of,
            # Reads the arguments of ``Module.to`` for code that hands the device on, so it must not be rewritten yet.
            parse_to: _parse_to,
            tensor.type: self._type,
            tensor.tolist: lambda args, kwargs: self._read(tensor.tolist, args, kwargs),
            tensor.numpy: lambda args, kwargs: self._read(tensor.numpy, args, kwargs),
        }

    def __torch_function__(
        self, func: Function, types: Iterable[type], args: Args = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Rewrite what concerns devices; everything else passes at the cost of two look-ups."""
        handler = self._handlers.get(func)
        if handler is not None:
            return handler(args, dict(kwargs or {}))
        if (kwargs and not _DEVICE_OPTIONS.isdisjoint(kwargs)) or func in self._factories:
            return self._make(func, args, dict(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _make(self, func: Function, args: Args, kwargs: dict[str, Any]) -> Any:
        """A factory call, or any other with ``device=``."""
        place: Place | None
        device = kwargs.get("device")
        if func in self._factories and (device is None or _put_by_context()):
            # torch.set_default_device acts below this mode, so it is asked here; ``with torch.device(...)`` above it.
            device = modes.CURRENT_DEVICE if device is None else device
            place = self._placement.default if device is None else place_named(device)
        else:
            place = None if device is None else place_named(device)
        if kwargs.pop("pin_memory", False):
            place = "pinned"
        if device is not None and not _is_meta(device):
            kwargs["device"] = _CPU
        with self._placement.asking(place):
            return func(*args, **kwargs)

    def _to(self, args: Args, kwargs: dict[str, Any]) -> torch.Tensor:
        tensor, *rest = args
        options = dict(zip(_TO_OPTIONS[_kind(rest)], rest, strict=False)) | kwargs
        device, other = options.pop("device", None), options.pop("other", None)
        if device is None and other is None:
            return torch.Tensor.to(*args, **kwargs)
        if _is_meta(device):
            with self._placement.asking("meta"):
                return torch.Tensor.to(*args, **kwargs)
        if other is not None:
            return self._move(tensor, self._place(other), {"dtype": other.dtype, **options})
        return self._move(tensor, place_named(device), options)

    def _cuda(self, args: Args, kwargs: dict[str, Any]) -> torch.Tensor:
        kwargs.pop("device", None)
        return self._move(args[0], "device", kwargs)

    def _cpu(self, args: Args, kwargs: dict[str, Any]) -> torch.Tensor:
        return self._move(args[0], "host", kwargs)

    def _type(self, args: Args, kwargs: dict[str, Any]) -> Any:
        """``Tensor.type``, by which old code names a type and a place at once."""
        tensor, *rest = args
        wanted = rest[0] if rest else kwargs.get("dtype")
        if wanted is None:
            return type_name(tensor.dtype, on_device=not self._placement.is_host(tensor))
        named = legacy_type(wanted)
        if named is None:
            return torch.Tensor.type(*args, **kwargs)
        return self._move(tensor, "device" if named.is_cuda else "host", {"dtype": named.dtype})

    def _read(self, function: Function, args: Args, kwargs: dict[str, Any]) -> Any:
        self._placement.read(args[0])
        return function(*args, **kwargs)

    def _pin_memory(self, args: Args, _: dict[str, Any]) -> torch.Tensor:
        if self._placement.is_pinned(args[0]):
            already: torch.Tensor = args[0]
            return already
        with self._placement.asking("pinned"):
            pinned: torch.Tensor = args[0].clone()
        return pinned

    def _as_tensor(self, args: Args, kwargs: dict[str, Any]) -> torch.Tensor:
        options = dict(zip(("data", "dtype", "device"), args, strict=False)) | kwargs
        data = options.pop("data")
        if isinstance(data, torch.Tensor):
            moved: torch.Tensor = self._to((data,), options) if options else data
            return moved
        made: torch.Tensor = self._make(torch.as_tensor, (data,), options)
        return made

    def _move(self, tensor: torch.Tensor, place: Place, options: dict[str, Any]) -> torch.Tensor:
        """``Tensor.to``; a change of place is a copy even though both places are fake CPU."""
        options = {name: value for name, value in options.items() if value is not None}
        if place == self._place(tensor):
            return torch.Tensor.to(tensor, _CPU, **options)
        with self._placement.asking(place):
            return torch.Tensor.to(tensor, _CPU, **{**options, "copy": True})

    def _place(self, tensor: torch.Tensor) -> Place:
        return "host" if self._placement.is_host(tensor) else "device"


def _getter(name: str) -> Function:
    """What a function mode is given when code reads a property of a tensor."""
    getter: Function = vars(TensorBase)[name].__get__
    return getter


def _kind(positional: list[Any]) -> str:
    """Which of the overloads of ``Tensor.to`` a call means."""
    first = positional[0] if positional else None
    return "other" if isinstance(first, torch.Tensor) else "dtype" if isinstance(first, torch.dtype) else "device"


_TO_OPTIONS = {
    "device": ("device", "dtype", "non_blocking", "copy"),
    "dtype": ("dtype", "non_blocking", "copy"),
    "other": ("other", "non_blocking", "copy"),
}
"""Positional parameters of the overloads of ``Tensor.to``."""
