"""The device at hand: what its driver says of it. Called in a child process, which it leaves with a CUDA context."""

import contextlib
import platform
import subprocess
from pathlib import Path

import torch

from memplan.errors import UsageError
from memplan.runtime.meters.host import host_reading
from memplan.units import Bytes
from memplan.validate.records import DeviceFacts


def facts_here(asked: str) -> DeviceFacts:
    """Describe a device: ``auto`` (CUDA if there is any), ``cpu``, ``cuda`` or ``cuda:N``.

    Raises:
        UsageError: There is no such device.
    """
    kind, _, index = asked.partition(":")
    if kind not in {"auto", "cpu", "cuda"} or (index and (kind != "cuda" or not index.isdigit())):
        raise UsageError(f"--device takes auto, cpu, cuda or cuda:N, not '{asked}'")
    if kind == "cpu" or (kind == "auto" and not torch.cuda.is_available()):
        return _cpu()
    return _cuda(int(index or 0))


def _cpu() -> DeviceFacts:
    host = host_reading()
    return DeviceFacts(
        kind="cpu",
        index=0,
        name=_processor(),
        total_bytes=Bytes(host.total),
        free_bytes=Bytes(host.available),
        host_free_bytes=Bytes(host.available),
        versions={"torch": torch.__version__},
    )


def _cuda(index: int) -> DeviceFacts:
    if not torch.cuda.is_available():
        hint = "run it on the machine with the GPU, or give --device cpu" if torch.version.cuda else _CPU_BUILD
        raise UsageError("PyTorch sees no CUDA device here", where="--device", hint=hint)
    if index >= torch.cuda.device_count():
        raise UsageError(f"there is no cuda:{index}; PyTorch sees {torch.cuda.device_count()}", where="--device")
    try:
        torch.cuda.set_device(index)
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info(index)
    except RuntimeError as error:
        raise UsageError(f"cuda:{index} cannot be used: {str(error).splitlines()[0]}", where="--device") from error
    properties = torch.cuda.get_device_properties(index)
    return DeviceFacts(
        kind="cuda",
        index=index,
        name=torch.cuda.get_device_name(index),
        total_bytes=Bytes(max(total, properties.total_memory)),
        free_bytes=Bytes(free),
        host_free_bytes=Bytes(host_reading().available),
        capability=(properties.major, properties.minor),
        sm_count=properties.multi_processor_count,
        threads_per_sm=getattr(properties, "max_threads_per_multi_processor", 0),
        versions=_versions(index),
    )


_CPU_BUILD = "this PyTorch is built for the CPU: install a CUDA build, or give --device cpu"


def _versions(index: int) -> dict[str, str]:
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda or ""}
    with contextlib.suppress(RuntimeError):
        versions["cudnn"] = str(torch.backends.cudnn.version() or "")  # type: ignore[no-untyped-call]
    versions["driver"] = _driver(index)
    return {name: text for name, text in versions.items() if text}


def _driver(index: int) -> str:
    """The driver's version by nvidia-smi; empty without it."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", f"--id={index}"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)  # noqa: S603 - fixed words.
        return done.stdout.strip().splitlines()[0] if done.stdout.strip() else ""
    return ""


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
