"""GPUs as their driver sees them (NVML): all processes together, no allocator. Torch-free; needs ``nvidia-ml-py``."""

from contextlib import suppress
from importlib import import_module
from typing import Any

from memplan.runtime.meters.records import DeviceReading


class Nvml:
    """An open connection to the driver; ``connect`` makes one. Calls from several threads are the driver's business."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]

    def readings(self) -> tuple[DeviceReading, ...]:
        """All GPUs that the driver shows; one that cannot be read just now is left out."""
        found = (self._reading(index, handle) for index, handle in enumerate(self._handles))
        return tuple(reading for reading in found if reading is not None)

    def users(self, index: int) -> frozenset[int]:
        """Process ids that compute on a GPU, as the driver counts them: in a container they may be other ones."""
        try:
            running = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handles[index])
        except self._nvml.NVMLError:
            return frozenset()
        return frozenset(int(each.pid) for each in running)

    def _reading(self, index: int, handle: Any) -> DeviceReading | None:
        nvml = self._nvml
        try:
            used, total = self._memory(handle)
            name, uuid = (_text(ask(handle)) for ask in (nvml.nvmlDeviceGetName, nvml.nvmlDeviceGetUUID))
        except nvml.NVMLError:
            return None
        return DeviceReading(device=f"cuda:{index}", name=name, uuid=uuid, used=used, total=total)

    def _memory(self, handle: Any) -> tuple[int, int]:
        """Bytes used and there, as CUDA counts them: without what the driver keeps for itself, hundreds of MiB.

        The first version of the call counts that as used. Whether the second does so, too, NVIDIA's guides disagree on;
        what is free is the same in all of them.
        """
        nvml = self._nvml
        second = getattr(nvml, "nvmlMemory_v2", None)  # nvidia-ml-py 11.515
        if second is not None:
            with suppress(nvml.NVMLError):  # Drivers before 510, and WSL.
                memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=second)
                total = int(memory.total) - int(memory.reserved)
                return total - int(memory.free), total
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        return int(memory.used), int(memory.total)


def connect() -> tuple[Nvml | None, str]:
    """Connect to the driver.

    Returns:
        The connection; or None, and why there is none. Where there is no driver there is nothing to say.
    """
    try:
        nvml = import_module("pynvml")
    except ImportError:
        return None, "GPUs are not read from outside: nvidia-ml-py is missing (pip install 'memplan[runtime]')"
    try:
        nvml.nvmlInit()
        return Nvml(nvml), ""
    except (nvml.NVMLError_LibraryNotFound, nvml.NVMLError_DriverNotLoaded):
        return None, ""
    except nvml.NVMLError as error:
        return None, f"GPUs are not read from outside: {error}"


def _text(answer: str | bytes) -> str:
    return answer.decode() if isinstance(answer, bytes) else answer
