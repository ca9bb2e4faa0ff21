"""GPUs and network cards on the PCI bus, and the node that each hangs on."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from memplan.runtime.numa.driver import DriverGpu
from memplan.runtime.numa.records import Device, NumaNode
from memplan.runtime.numa.system_files import SystemFiles

PCI = "sys/bus/pci/devices"
GPU_VENDORS: Mapping[int, str] = {0x10DE: "nvidia", 0x1002: "amd", 0x8086: "intel"}
"""PCI vendor → name, in the order in which a machine's GPUs count: beside an H100 the CPU's own graphics do not, and
a server's ASPEED card never does (pci.ids)."""
GPU_CLASSES = frozenset({0x0300, 0x0302, 0x0380, 0x1200})
"""VGA, 3D and other display controllers, processing accelerators (PCI code and ID assignment specification)."""
NIC_CLASSES = frozenset({0x0200, 0x0207})
"""Ethernet and InfiniBand controllers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    address: str
    vendor: int
    device_class: int


def find_devices(
    files: SystemFiles, nodes: Sequence[NumaNode], driver: Sequence[DriverGpu] | None
) -> tuple[tuple[Device, ...], tuple[Device, ...]]:
    """GPUs, not yet numbered, and network cards.

    ``driver`` has NVIDIA's GPUs as their driver sees them, and no others then; None: not asked.
    """
    found = list(_scan(files))
    cards = tuple(_card(files, device, nodes) for device in found if device.device_class in NIC_CLASSES)
    if driver is not None:
        return tuple(_told(files, gpu, nodes) for gpu in driver), cards
    gpus = [device for device in found if device.device_class in GPU_CLASSES and device.vendor in GPU_VENDORS]
    vendor = next((number for number in GPU_VENDORS if any(gpu.vendor == number for gpu in gpus)), None)
    return tuple(_gpu(files, gpu, nodes) for gpu in gpus if gpu.vendor == vendor), cards


def _scan(files: SystemFiles) -> Iterator[_Found]:
    for address in files.names(PCI):
        code = files.number(f"{PCI}/{address}/class") >> 8
        # Virtual functions are parts of a card that is already there.
        if code in GPU_CLASSES | NIC_CLASSES and "physfn" not in files.names(f"{PCI}/{address}"):
            yield _Found(address=address, vendor=files.number(f"{PCI}/{address}/vendor"), device_class=code)


def _gpu(files: SystemFiles, found: _Found, nodes: Sequence[NumaNode]) -> Device:
    node, told_by = _node(files, found.address, nodes)
    vendor = GPU_VENDORS[found.vendor]
    return Device(kind="gpu", address=found.address, vendor=vendor, name="", node=node, told_by=told_by)


def _told(files: SystemFiles, gpu: DriverGpu, nodes: Sequence[NumaNode]) -> Device:
    node, told_by = _node(files, gpu.address, nodes)
    known = {candidate.index for candidate in nodes}
    if node is None and len(gpu.nodes) == 1 and gpu.nodes[0] in known:
        node, told_by = gpu.nodes[0], "NVML"
    return Device(kind="gpu", address=gpu.address, vendor="nvidia", name=gpu.name, node=node, told_by=told_by,
                  uuid=gpu.uuid, memory_node=gpu.memory_node)  # fmt: skip


def _card(files: SystemFiles, found: _Found, nodes: Sequence[NumaNode]) -> Device:
    node, told_by = _node(files, found.address, nodes)
    folder = f"{PCI}/{found.address}"
    names = [*files.names(f"{folder}/infiniband"), *files.names(f"{folder}/net")]
    vendor = GPU_VENDORS.get(found.vendor, f"{found.vendor:04x}")
    return Device(kind="nic", address=found.address, vendor=vendor, name=" ".join(names), node=node, told_by=told_by)


def _node(files: SystemFiles, address: str, nodes: Sequence[NumaNode]) -> tuple[int | None, str]:
    """The node of a device and what tells it. -1 is the kernel's word for "the firmware does not say"."""
    told = files.number(f"{PCI}/{address}/numa_node", -1)
    if told in {node.index for node in nodes}:
        return told, "numa_node"
    if told >= 0:
        files.notes.append(f"{address} says it is on node {told}, which is not there")
    local = set(files.list(f"{PCI}/{address}/local_cpulist"))
    near = [node for node in nodes if node.cpus and local and local <= set(node.cpus)]
    if len(near) == 1:
        return near[0].index, "local_cpulist"
    if len(nodes) == 1:
        return nodes[0].index, "the only node"
    return None, ""
