"""``torch.cuda`` and ``torch.accelerator`` as user code meets them on a machine with one GPU of the given kind.

Nothing here allocates. Memory statistics answer 0: a trace has none, and code that branches on them is rare.
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Self

import torch

from memplan.trace.records import DeviceTraits
from memplan.trace.replacements import Attribute, attributes

ASSUMED_TOTAL_BYTES = 80 * 2**30
"""What ``get_device_properties().total_memory`` says: user code may ask, the estimate does not depend on it."""


class Stream:
    """A stand-in for ``torch.cuda.Stream``: one thread of work, nothing to wait for."""

    cuda_stream = 0
    device = torch.device("cuda", 0)

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def is_capturing(self) -> bool:
        """No CUDA graph is being captured."""
        return False

    def wait_stream(self, stream: object) -> None:
        """Nothing runs."""

    def wait_event(self, event: object) -> None:
        """Nothing runs."""

    def synchronize(self) -> None:
        """Nothing runs."""

    def query(self) -> bool:
        """All work is done."""
        return True

    def record_event(self, event: "Event | None" = None) -> "Event":
        """The event, or a new one."""
        return event or Event()


class Event:
    """A stand-in for ``torch.cuda.Event``."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def record(self, stream: object = None) -> None:
        """Nothing runs."""

    def wait(self, stream: object = None) -> None:
        """Nothing runs."""

    def synchronize(self) -> None:
        """Nothing runs."""

    def query(self) -> bool:
        """All work is done."""
        return True

    def elapsed_time(self, end_event: object) -> float:
        """No time passes."""
        del end_event
        return 0.0


class _Generator(torch.Generator):
    """``torch.Generator(device="cuda")`` draws no numbers in a trace."""

    def __new__(cls, device: object = None) -> Self:
        del device
        return super().__new__(cls, "cpu")  # type: ignore[call-arg]


@contextlib.contextmanager
def cuda_runtime(device: DeviceTraits) -> Iterator[None]:
    """Let ``torch.cuda`` answer as if one such GPU were there.

    Args:
        device: Traits of the GPU.

    Yields:
        Nothing.
    """
    with attributes(_table(device)):
        yield


def _table(device: DeviceTraits) -> tuple[Attribute, ...]:
    major, minor = device.capability
    properties = SimpleNamespace(
        name="memplan fake GPU",
        major=major,
        minor=minor,
        total_memory=ASSUMED_TOTAL_BYTES,
        multi_processor_count=device.sm_count,
        max_threads_per_multi_processor=device.threads_per_sm,
        regs_per_multiprocessor=65_536,
        warp_size=32,
        is_integrated=False,
        is_multi_gpu_board=False,
    )
    stream = Stream()
    answers: dict[str, object] = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_name": properties.name,
        "get_device_capability": device.capability,
        "get_device_properties": properties,
        "is_tf32_supported": device.capability >= (8, 0),
        "is_current_stream_capturing": False,
        "mem_get_info": (ASSUMED_TOTAL_BYTES, ASSUMED_TOTAL_BYTES),
        "memory_stats": defaultdict(int),
        "memory_summary": "",
        "get_rng_state_all": [],
        "current_stream": stream,
        "default_stream": stream,
        **dict.fromkeys(_MEMORY_FIGURES, 0),
        **dict.fromkeys(_ACTIONS, None),
    }
    table = [Attribute(torch.cuda, name, _answering(value)) for name, value in answers.items()]
    table += [
        # torch/cuda/__init__.py: older GPUs emulate the type, and the default answer counts that.
        Attribute(
            torch.cuda,
            "is_bf16_supported",
            lambda including_emulation=True: including_emulation or device.capability >= (8, 0),
        ),
        Attribute(torch.cuda, "Stream", Stream),
        Attribute(torch.cuda, "Event", Event),
        Attribute(torch.cuda, "stream", _pass_through),
        Attribute(torch.cuda, "device", _pass_through),
        Attribute(torch.cuda, "get_rng_state", lambda *_, **__: torch.get_rng_state()),
        Attribute(torch, "Generator", _Generator),
        Attribute(torch.nn.DataParallel, "forward", _run_on_one_device),
    ]
    table += [Attribute(torch.cuda.nvtx, name, _answering(None)) for name in ("range_push", "range_pop", "mark")]
    table += [Attribute(torch.cuda.memory, name, _answering(None)) for name in _HISTORY]
    return (*table, *_accelerator())


_MEMORY_FIGURES = (
    "memory_allocated",
    "max_memory_allocated",
    "memory_reserved",
    "max_memory_reserved",
    "utilization",
)
_HISTORY = ("_record_memory_history", "_dump_snapshot")
"""Scripts that profile memory call these of ``torch.cuda.memory``."""
_ACTIONS = (
    "init",
    "synchronize",
    "empty_cache",
    "ipc_collect",
    "set_device",
    "set_stream",
    "set_rng_state",
    "set_rng_state_all",
    "set_per_process_memory_fraction",
    "manual_seed",
    "manual_seed_all",
    "reset_peak_memory_stats",
    "reset_max_memory_allocated",
    "reset_accumulated_memory_stats",
)


def _accelerator() -> list[Attribute]:
    """torch.accelerator, where this torch has it."""
    module = getattr(torch, "accelerator", None)
    answers: dict[str, object] = {
        "is_available": True,
        "device_count": 1,
        "current_device_index": 0,
        "current_device_idx": 0,
        "current_accelerator": torch.device("cuda"),
        "current_stream": Stream(),
        "synchronize": None,
        "set_device_index": None,
        "empty_cache": None,
    }
    return [] if module is None else [Attribute(module, name, _answering(value)) for name, value in answers.items()]


def _answering(value: object) -> Callable[..., Any]:
    def answer(*_: object, **__: object) -> object:
        return value

    return answer


def _run_on_one_device(wrapper: torch.nn.DataParallel[torch.nn.Module], *args: Any, **kwargs: Any) -> Any:
    """What ``DataParallel.forward`` does on one GPU, without its look at where the parameters lie."""
    return wrapper.module(*args, **kwargs)


@contextlib.contextmanager
def _pass_through(target: object = None) -> Iterator[object]:
    yield target
