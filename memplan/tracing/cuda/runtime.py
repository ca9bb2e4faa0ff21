"""``torch.cuda`` and ``torch.accelerator`` as user code meets them on a machine with one GPU of the given kind.

Nothing here allocates. Memory statistics answer 0: a trace has none, and code that branches on them is rare.
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Self

import torch

from memplan.seam.patches.cuda import ACTIONS, FIGURES
from memplan.seam.replace import Replacement, replaced
from memplan.tracing.cuda.graphs import answers as of_graphs
from memplan.tracing.cuda.legacy_types import CUDA_TYPES
from memplan.tracing.cuda.release import cuda_version, rocm_version
from memplan.tracing.cuda.streams import Stream, Streams
from memplan.tracing.cuda.streams import answers as of_streams
from memplan.tracing.records import DeviceTraits

_NAMES = {
    (7, 0): "Tesla V100-SXM2-32GB",
    (7, 5): "Tesla T4",
    (8, 0): "NVIDIA A100-SXM4-80GB",
    (8, 6): "NVIDIA A40",
    (8, 9): "NVIDIA L40S",
    (9, 0): "NVIDIA H100 80GB HBM3",
    (10, 0): "NVIDIA B200",
    (12, 0): "NVIDIA RTX PRO 6000 Blackwell Server Edition",
}
"""Capability → what ``torch.cuda.get_device_name`` says of the best known card of it (the H100's stands in
``benchmarks/gpu/results``). Programs look speeds up by it, and cards that share a trace share the name."""
_AMD_NAMES = {(9, 0): "AMD Instinct MI250X", (9, 4): "AMD Instinct MI300X", (9, 5): "AMD Instinct MI350X"}
"""The same of AMD's cards (github.com/pytorch/ao/pull/2853)."""
ASSUMED_TOTAL_BYTES = 80 * 2**30
"""What ``get_device_properties().total_memory`` says: user code may ask, the estimate does not depend on it."""


_DTYPES = frozenset(value for value in vars(torch).values() if isinstance(value, torch.dtype))
"""All types: tensors of each can be made on a GPU."""


class _Generator(torch.Generator):
    """``torch.Generator(device="cuda")`` draws no numbers in a trace."""

    def __new__(cls, device: object = None) -> Self:
        del device
        return super().__new__(cls, "cpu")  # type: ignore[call-arg]


@contextlib.contextmanager
def cuda_runtime(device: DeviceTraits) -> Iterator[Streams]:
    """Let ``torch.cuda`` answer as if one such GPU were there; yields its streams."""
    streams = Streams()
    with replaced(_table(device, streams)):
        yield streams


def _table(device: DeviceTraits, streams: Streams) -> tuple[Replacement, ...]:
    properties = _properties(device)

    def record_stream(tensor: torch.Tensor, stream: Stream) -> None:
        streams.record(tensor, stream)

    answers: dict[str, object] = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_name": properties.name,
        "get_device_capability": device.told,
        "get_device_properties": properties,
        "is_tf32_supported": device.told >= ((9, 4) if device.rocm else (8, 0)),
        "is_current_stream_capturing": False,
        "mem_get_info": (ASSUMED_TOTAL_BYTES, ASSUMED_TOTAL_BYTES),
        "memory_stats": defaultdict(int),
        "memory_summary": "",
        "get_rng_state_all": [],
    }
    table = [Replacement(f"torch.cuda.{name}", _answering(value)) for name, value in answers.items()]
    table += [Replacement(row.path, _answering(0)) for row in FIGURES]
    table += [
        Replacement(row.path, streams.synchronize if row.path == "torch.cuda.synchronize" else _answering(None))
        for row in ACTIONS
    ]
    table += [
        # torch/cuda/__init__.py: older GPUs emulate the type, and the default answer counts that.
        Replacement(
            "torch.cuda.is_bf16_supported",
            lambda including_emulation=True: including_emulation or device.told >= (8, 0),
        ),
        Replacement("torch.version.cuda", None if device.rocm else torch.version.cuda or cuda_version()),
        Replacement("torch.version.hip", torch.version.hip or rocm_version() if device.rocm else None),
        Replacement("torch.cuda.device", _pass_through),
        Replacement("torch.cuda.get_rng_state", lambda *_, **__: torch.get_rng_state()),
        Replacement("torch.Generator", _Generator),
        Replacement("torch.nn.DataParallel.forward", _run_on_one_device),
        Replacement("torch.Tensor.record_stream", record_stream),
    ]
    of_both = {**of_streams(streams), **of_graphs(streams)}
    table += [Replacement(f"torch.cuda.{name}", value) for name, value in of_both.items()]
    table += [Replacement(f"torch.cuda.{kind.__name__}", kind) for kind in CUDA_TYPES]
    return (*table, *_accelerator(streams))


def _properties(device: DeviceTraits) -> SimpleNamespace:
    major, minor = device.told
    amd = _AMD_NAMES.get(device.told, "AMD GPU")
    properties = SimpleNamespace(
        name=amd if device.rocm else _NAMES.get(device.capability, "NVIDIA GPU"),
        major=major,
        minor=minor,
        total_memory=ASSUMED_TOTAL_BYTES,
        multi_processor_count=device.sm_count,
        max_threads_per_multi_processor=device.threads_per_sm,
        regs_per_multiprocessor=65_536,
        warp_size=64 if device.rocm else 32,
        is_integrated=False,
        is_multi_gpu_board=False,
    )
    if device.architecture:
        properties.gcnArchName = f"{device.architecture}:sramecc+:xnack-"
    return properties


def _accelerator(streams: Streams) -> list[Replacement]:
    """torch.accelerator."""
    answers: dict[str, object] = {
        "is_available": True,
        "device_count": 1,
        "current_device_index": 0,
        "current_device_idx": 0,
        "current_accelerator": torch.device("cuda"),
        "get_device_capability": {"supported_dtypes": _DTYPES},
        "get_memory_info": (ASSUMED_TOTAL_BYTES, ASSUMED_TOTAL_BYTES),
        "memory_stats": defaultdict(int),
    }
    of_stream = [
        Replacement(f"torch.accelerator.{name}", of_streams(streams)[name]) for name in ("current_stream", "set_stream")
    ]
    return [
        *(Replacement(f"torch.accelerator.{name}", _answering(value)) for name, value in answers.items()),
        *of_stream,
        Replacement("torch.accelerator.device_index", _pass_through),
    ]


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
