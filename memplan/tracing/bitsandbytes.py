"""Shape-only bitsandbytes: the installed package's own Python runs on fake tensors, its C library does nothing.

All the memory that bitsandbytes takes it takes by calls of torch in Python: quantised weights and their statistics,
dequantised copies, states of 8-bit and paged optimizers. So whatever version is installed, that code runs as it is
written and the recorder sees its allocations; what is put in its way is in ``_table``:

* the C library, whose kernels write into tensors that are there already, is one whose functions do nothing;
* custom operators run the Python part of their CUDA kernels instead of a shape function, which would hide what they
  take on the side;
* paged states, which CUDA's managed memory holds and torch's allocator never sees, are host tensors;
* parameters that are quantised are fake tensors of their own class.

What decides memory differs between versions (bitsandbytes' own sources at these releases):

=============  =============================================  ==================================================
release        ``MatMul4Bit``                                 also
=============  =============================================  ==================================================
0.41 - 0.42    keeps its input on ``ctx`` until the graph     ``Params4bit.cuda`` quantises from fp16, so that
               dies; dequantises to the dtype quantised from  bf16 layers take two copies; optimizers' blocks of 2048
0.43           keeps the packed weight alone                  quantises from the dtype of the weight
0.44 - 0.45    as 0.43                                        blocks of 256
0.46 - 0.49    as 0.43                                        custom operators
0.50           one operator (``gemm_4bit``), which            nothing is dequantised for few tokens
               dequantises inside
=============  =============================================  ==================================================
"""

import functools
import importlib
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

import torch

from memplan.seam.fake import FakeTensor
from memplan.seam.operators import DispatchKey, OpOverload, dispatch_get_all_op_names
from memplan.seam.patches.libraries import MAKE_SUBCLASS, RAW_STREAM
from memplan.seam.replace import Replacement, attribute, replaced
from memplan.tracing.cuda.told_device import CUDA
from memplan.tracing.late_imports import outside_trace, when_imported

PACKAGE = "bitsandbytes"
_PARAMETERS = frozenset({"Params4bit", "Int8Params"})
"""Parameters that are quantised when they are moved to the device."""

_UPDATE_KERNELS = ("str2optimizer32bit", "str2optimizer8bit", "str2optimizer8bit_blockwise")
"""Tables of the optimizers' C functions in ``bitsandbytes.functional``, 0.45 and earlier."""


@contextmanager
def shape_only_bitsandbytes() -> Iterator[None]:
    """Let bitsandbytes run on fake tensors while the context lasts, from the moment when it is imported.

    Yields:
        Nothing.
    """
    with ExitStack() as stack:

        def enter(_: ModuleType) -> None:
            # What wrappers of kernels ask for their last argument.
            stack.enter_context(replaced((Replacement(RAW_STREAM.path, lambda _=None: 0),)))
            if f"{PACKAGE}._ops" in sys.modules:
                _load_cuda_operators()
            else:
                # A CPU build leaves these out, and only what is there can be put back.
                for name in _UPDATE_KERNELS:
                    vars(sys.modules[f"{PACKAGE}.functional"]).setdefault(name, {})
            stack.enter_context(replaced(_table()))

        stack.enter_context(when_imported(PACKAGE, enter, outside_trace))
        yield


def quantise(model: torch.nn.Module) -> None:
    """Move what is quantised on the way to the device there: the ``.to("cuda")`` that every program has."""
    for module in model.modules():
        if any(type(parameter).__name__ in _PARAMETERS for parameter in module._parameters.values()):
            module.to("cuda")


def statistics(parameter: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Names and tensors of what a quantised parameter carries beside its codes: maxima, code tables, offsets."""
    if type(parameter).__name__ in _PARAMETERS:
        yield from _tensors(vars(parameter))


def _tensors(fields: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    for name, value in fields.items():
        if isinstance(value, torch.Tensor):
            yield name, value
        elif type(value).__name__ == "QuantState":
            yield from ((f"{name}.{inner}", tensor) for inner, tensor in _tensors(vars(value)))


class _SilentLibrary:
    """A C library whose every function does nothing and returns 0, which is success."""

    compiled_with_cuda = True

    def __getattr__(self, name: str) -> Callable[..., int]:
        def function(*_: object) -> int:
            return 0

        return function

    def __getitem__(self, name: str) -> Callable[..., int]:
        return self.__getattr__(name)


class _EveryOptimizer(dict[str, Any]):
    """Tables of update kernels (0.45 and earlier) as they would be filled on a CUDA machine."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> tuple[Callable[..., int], ...]:
        return (_SilentLibrary()[name],) * 3


class _HostCode:
    """An operator that runs the Python part of its CUDA kernel."""

    def __init__(self, packet: Any) -> None:
        self._packet = packet

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__getattr__("default")(*args, **kwargs)

    def __getattr__(self, overload: str) -> Any:
        op = getattr(self._packet, overload)
        if not isinstance(op, OpOverload):
            return op
        keys = (DispatchKey.CUDA, DispatchKey.CompositeExplicitAutograd)
        key = next((key for key in keys if op.has_kernel_for_dispatch_key(key)), None)
        return op if key is None else functools.partial(op._op_dk, key)


def _load_cuda_operators() -> None:
    """Import the CUDA kernels' Python part (0.46 and later); the package itself does so only where there is a GPU."""
    library = (Replacement("bitsandbytes.*.lib", _SilentLibrary(), sys.modules[f"{PACKAGE}.cextension"]),)
    with outside_trace(), replaced(library):
        module = importlib.import_module(f"{PACKAGE}.backends.cuda.ops")
    for each in vars(module).values():
        if hasattr(each, "cache_clear"):
            # Remembers the properties of the GPU that was played last.
            each.cache_clear()


def _table() -> tuple[Replacement, ...]:
    functional = sys.modules[f"{PACKAGE}.functional"]
    library = _SilentLibrary()
    loaded = [module for name, module in sys.modules.items() if name.startswith(f"{PACKAGE}.") and module is not None]
    operators: Any = getattr(torch.ops, PACKAGE)
    registered = [name for name in dispatch_get_all_op_names() if name.startswith(f"{PACKAGE}::")]
    names = {name.removeprefix(f"{PACKAGE}::").partition(".")[0] for name in registered}
    return (
        *(Replacement("bitsandbytes.*.lib", library, module) for module in loaded if hasattr(module, "lib")),
        *(Replacement("bitsandbytes.functional.*", _EveryOptimizer(), functional, name) for name in _UPDATE_KERNELS),
        *(
            Replacement("torch.ops.bitsandbytes.*", _HostCode(getattr(operators, name)), operators, name)
            for name in sorted(names)
        ),
        Replacement("bitsandbytes.functional.get_paged", _paged),
        # What these remember would outlive the trace.
        Replacement("bitsandbytes.functional.name2qmap", {}),
        Replacement("bitsandbytes.functional.GlobalPageManager._instance", None),
        Replacement(MAKE_SUBCLASS.path, _subclass(attribute(MAKE_SUBCLASS.path))),
    )


def _paged(*shape: int, dtype: torch.dtype = torch.float32, device: torch.device = CUDA) -> torch.Tensor:
    """``bitsandbytes.functional.get_paged``."""
    buffer: Any = torch.empty(*shape, dtype=dtype, device="cpu")
    buffer.is_paged, buffer.page_deviceid = True, device.index
    return buffer  # type: ignore[no-any-return]


def _subclass(original: Callable[..., Any]) -> staticmethod:  # type: ignore[type-arg]
    """``Tensor._make_subclass``, which cannot put a class of its own on a fake tensor: that one has a class already."""

    def make(cls: type, data: torch.Tensor, requires_grad: bool = False, **options: Any) -> Any:
        if not isinstance(data, FakeTensor):
            return original(cls, data, requires_grad, **options)
        tensor: Any = data.detach()
        tensor.__class__ = _fake_class(cls)
        tensor._is_param = issubclass(cls, torch.nn.Parameter)
        return tensor.requires_grad_(requires_grad)

    return staticmethod(make)


@functools.cache
def _fake_class(cls: type) -> type:
    """A class that is both a parameter's and a fake tensor's."""
    if issubclass(cls, FakeTensor):
        return cls
    made: type = types.new_class(
        cls.__name__, (cls, FakeTensor), {}, lambda body: body.update(__module__=cls.__module__)
    )
    return made
