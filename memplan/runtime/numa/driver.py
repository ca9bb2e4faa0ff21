"""What NVIDIA's driver says of the GPUs: their order, names, nodes and MIG instances (NVML, by nvidia-ml-py)."""

import contextlib
from dataclasses import dataclass
from typing import Any

NODE_WORDS = 16
"""64-bit words of a mask of nodes: 1024 nodes, the kernel's most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverGpu:
    """A GPU as its driver sees it. In a container these are fewer than the PCI bus has."""

    address: str
    """On the PCI bus, as ``/sys`` writes it."""
    uuid: str
    """``GPU-…``."""
    name: str
    """The product."""
    nodes: tuple[int, ...]
    """Nodes whose memory is nearest; empty: not told."""
    memory_node: int | None
    """The node that the GPU's own memory is; None where it is none."""
    migs: tuple[str, ...]
    """UUIDs of its MIG instances."""


def nvidia_gpus() -> tuple[tuple[DriverGpu, ...] | None, str]:
    """Ask the driver.

    Returns the GPUs in NVML's order, which is that of the bus; None where nobody answers, and then why.
    """
    try:
        import pynvml
    except ImportError:
        return None, "NVML was not asked: nvidia-ml-py is not installed"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return None, f"NVML does not answer: {error}"
    try:
        return tuple(_gpu(pynvml, number) for number in range(pynvml.nvmlDeviceGetCount())), ""
    except pynvml.NVMLError as error:
        return None, f"NVML does not answer: {error}"
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _gpu(nvml: Any, number: int) -> DriverGpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(number)
    return DriverGpu(
        address=sysfs_address(_text(nvml.nvmlDeviceGetPciInfo(handle).busId)),
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        name=_text(nvml.nvmlDeviceGetName(handle)),
        nodes=_nodes(nvml, handle),
        memory_node=_memory_node(nvml, handle),
        migs=_migs(nvml, handle),
    )


def sysfs_address(bus_id: str) -> str:
    """NVML's ``00000000:3B:00.0`` as ``/sys`` has it: four digits of domain, small letters."""
    domain, _, rest = bus_id.partition(":")
    return f"{int(domain, 16):04x}:{rest.lower()}"


def _nodes(nvml: Any, handle: Any) -> tuple[int, ...]:
    try:
        words = nvml.nvmlDeviceGetMemoryAffinity(handle, NODE_WORDS, nvml.NVML_AFFINITY_SCOPE_NODE)
    except (nvml.NVMLError, AttributeError):
        return ()
    return tuple(64 * place + bit for place, word in enumerate(words) for bit in range(64) if word >> bit & 1)


def _memory_node(nvml: Any, handle: Any) -> int | None:
    # Not the node that the GPU hangs on: NVML tells this only where the GPU's memory is itself a node.
    try:
        node = int(nvml.nvmlDeviceGetNumaNodeId(handle))
    except (nvml.NVMLError, AttributeError):
        return None
    return node if node >= 0 else None


def _migs(nvml: Any, handle: Any) -> tuple[str, ...]:
    found = []
    with contextlib.suppress(nvml.NVMLError, AttributeError):
        for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            with contextlib.suppress(nvml.NVMLError):  # Places without an instance.
                found.append(_text(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number))))
    return tuple(found)


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
