"""Triton kernels during a trace: a launch computes nothing, and what Python does around it runs as it is written.

Kernels write into tensors that Python has allocated before, so all the memory that a launch needs is there already.
Triton is patched when user code imports it (at once, if it has been imported before); the trace never imports it.

* ``kernel[grid](...)`` calls a callable grid with the kernel's arguments, as Triton does, and launches nothing.
* ``@triton.heuristics`` stay as they are; ``@triton.autotune`` takes the first configuration that survives pruning, and
  the first call with a new key allocates what tuning takes: the buffer that clears the L2 cache between runs, and the
  copies of the arguments that it restores.
* ``triton.runtime.driver.active`` answers for the GPU that is played.

What a kernel writes is not known, so whatever was known of its arguments' elements is forgotten.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from memplan.seam.operators import OPDEFS, OpOverload, set_wrap_triton_enabled
from memplan.seam.replace import Replacement, replaced
from memplan.tracing.late_imports import when_imported
from memplan.tracing.nested import tensors_in
from memplan.tracing.records import DeviceTraits

NOTE = "Triton kernels: their results' values and any memory they take themselves"
TUNED = "@triton.autotune tunes a kernel at its first call with a new key and takes the first configuration"

_RUNTIME = "triton.runtime"
_SHARED_BYTES = {
    (7, 0): 98_304, (7, 2): 98_304, (7, 5): 65_536, (8, 0): 166_912, (8, 7): 166_912, (8, 6): 101_376,
    (8, 9): 101_376, (9, 0): 232_448, (10, 0): 232_448, (10, 3): 232_448, (12, 0): 101_376,
}  # fmt: skip
"""Compute capability → most shared memory of a block (CUDA C++ Programming Guide, technical specifications)."""

_TUNING_BYTES = 256 * 1024 * 1024
"""``get_empty_cache_for_benchmark`` of triton/backends/nvidia/driver.py, which ``do_bench`` holds while it measures."""


@contextmanager
def idle_kernels(
    device: DeviceTraits, written: Callable[[Sequence[torch.Tensor]], None], assume: Callable[[str], None]
) -> Iterator[Mapping[str, None]]:
    """Let launches of Triton kernels do nothing while the context lasts.

    Args:
        device: The GPU that is played.
        written: Told which tensors a kernel was given, and so may have written.
        assume: Takes a sentence for the report.

    Yields:
        What the figures leave out: empty until a kernel is launched.
    """
    noted: dict[str, None] = {}
    if device.kind == "cpu":
        # Triton has nothing to launch on there, and says so itself.
        yield noted
        return

    def launched(tensors: Sequence[torch.Tensor]) -> None:
        noted[NOTE] = None
        written(tensors)

    with ExitStack() as stack:

        def patch(runtime: ModuleType) -> None:
            stack.enter_context(_active_driver(sys.modules[f"{_RUNTIME}.driver"].driver, device))
            stack.enter_context(replaced(_replacements(runtime, launched, assume)))

        # A wrapped kernel would dispatch one of torch.compile's ops; unwrapped, it is launched like any other.
        stack.enter_context(set_wrap_triton_enabled(False))
        stack.enter_context(when_imported(_RUNTIME, patch, nullcontext))
        yield noted


def body_of(func: OpOverload) -> Callable[..., Any] | None:
    """The function behind an operator of ``torch.library.triton_op``; None for all others.

    It is registered as its own fake kernel too, but what runs there allocates out of a recorder's sight.
    """
    definition = OPDEFS.get(func._name)
    if definition is None or definition._init_fn.__module__ != set_wrap_triton_enabled.__module__:
        return None
    body: Callable[..., Any] | None = definition._abstract_fn
    return body


@contextmanager
def _active_driver(config: Any, device: DeviceTraits) -> Iterator[None]:
    """Let a stand-in answer for the driver, which would compile C and load CUDA's library when asked first."""
    former = dict(vars(config))
    config.set_active(_driver(device))
    try:
        yield
    finally:
        vars(config).update(former)


def _driver(device: DeviceTraits) -> SimpleNamespace:
    """What of ``triton.backends.nvidia.driver.CudaDriver`` user code asks."""
    target = import_module("triton.backends.compiler").GPUTarget
    major, minor = device.capability
    properties = {
        "max_shared_mem": _SHARED_BYTES.get(device.capability, 49_152),
        "max_num_regs": 65_536,
        "multiprocessor_count": device.sm_count,
        "warpSize": 32,
        "sm_clock_rate": 0,
        "mem_clock_rate": 0,
        "mem_bus_width": 0,
    }
    return SimpleNamespace(
        get_current_device=lambda: 0,
        set_current_device=lambda _: None,
        get_current_stream=lambda _=None: 0,
        get_device_capability=lambda _=None: device.capability,
        get_current_target=lambda: target("cuda", major * 10 + minor, 32),
        get_active_torch_device=lambda: torch.device("cuda", 0),
        get_device_interface=lambda: torch.cuda,
        # Asked for already when a kernel is decorated, before triton 3.3; a kernel may outlive the trace.
        get_benchmarker=lambda: import_module("triton.testing").do_bench,
        utils=SimpleNamespace(get_device_properties=lambda _=None: properties),
    )


def _replacements(
    runtime: ModuleType, launched: Callable[[Sequence[torch.Tensor]], None], assume: Callable[[str], None]
) -> tuple[Replacement, ...]:
    tuned: set[tuple[object, ...]] = set()

    def run(kernel: Any, *args: Any, grid: Any, warmup: bool = False, **options: Any) -> SimpleNamespace:
        if callable(grid):
            grid(_defaults(kernel) | dict(zip(kernel.arg_names, args, strict=False)) | options)
        if not warmup:
            launched(tensors_in([*args, *options.values()]))
        return _COMPILED

    def run_tuned(tuner: Any, *args: Any, **options: Any) -> Any:
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        configs = tuner.prune_configs(options) if len(tuner.configs) > 1 else tuner.configs
        arguments = tuner.nargs | options
        key = (id(tuner), *_tuning_key(tuner, arguments))
        if len(configs) > 1 and key not in tuned:
            tuned.add(key)
            assume(TUNED)
            _tune(tuner, arguments | configs[0].all_kwargs())
        if configs[0].pre_hook is not None:
            configs[0].pre_hook(arguments | configs[0].all_kwargs())
        result = tuner.fn.run(*args, **options, **configs[0].all_kwargs())
        # As Triton does: the tensors among them would live until the next call.
        tuner.nargs = None
        return result

    return (
        Replacement("triton.runtime.JITFunction.run", run, runtime.JITFunction),
        Replacement("triton.runtime.Autotuner.run", run_tuned, runtime.Autotuner),
    )


def _defaults(kernel: Any) -> dict[str, Any]:
    return {each.name: each.default for each in kernel.params if each.has_default}


def _tuning_key(tuner: Any, arguments: Mapping[str, Any]) -> tuple[object, ...]:
    """``Autotuner.run`` of triton/runtime/autotuner.py: the arguments named by ``key``, and the types of tensors."""
    named = [arguments[name] for name in tuner.keys if name in arguments]
    types = [str(arguments[name].dtype) for name in tuner.arg_names if hasattr(arguments.get(name), "dtype")]
    return (*named, *types)


def _tune(tuner: Any, arguments: dict[str, Any]) -> None:
    """Allocate what ``Autotuner._bench`` does: every configuration is measured alike, so one stands for all."""
    cleared = torch.empty(_TUNING_BYTES // 4, dtype=torch.int, device="cuda") if _measures_itself(tuner) else None
    tuner.pre_hook(arguments)
    tuner.post_hook(arguments, exception=None)
    del cleared


def _measures_itself(tuner: Any) -> bool:
    """Does it measure by the driver's ``do_bench``, and not by a function of the user's?"""
    return getattr(tuner, "_do_bench", None) is None


class _Launcher(SimpleNamespace):
    """What ``kernel.warmup(...)`` returns: something with figures that can be launched."""

    def __getitem__(self, grid: object) -> Callable[..., None]:
        del grid
        return lambda *_, **__: None


_COMPILED = _Launcher(
    n_regs=32,
    n_spills=0,
    metadata=SimpleNamespace(shared=0, num_warps=4, num_ctas=1, num_stages=1),
    _init_handles=lambda: None,
)
"""Figures of a small kernel: user code may ask, memory does not depend on them."""
