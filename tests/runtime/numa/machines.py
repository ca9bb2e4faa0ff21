"""Trees of ``/sys`` and ``/proc`` modelled on machines whose ``lscpu`` or ``nvidia-smi topo -m`` was published.

What the source does not show (memory sizes, PCI addresses, firmware distances) is filled in as such machines have it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

NVIDIA, INTEL, ASPEED, MELLANOX = 0x10DE, 0x8086, 0x1A03, 0x15B3
GIB_KB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Bus:
    """A device on the PCI bus."""

    address: str
    node: int
    vendor: int = NVIDIA
    code: int = 0x0302


@dataclass(frozen=True, kw_only=True)
class Machine:
    """As its source shows it."""

    name: str
    source: str
    nodes: Mapping[int, tuple[range, ...]]
    """Node → runs of its CPUs."""
    sockets: int
    threads: int = 2
    """Of each core: CPU c and c + half of all CPUs are siblings, as lscpu's lists of all these machines show."""
    cores_per_cache: int = 8
    free_gib: Mapping[int, int] = field(default_factory=dict)
    """Node → free memory; 48 where nothing is said, as much again is page cache, and twice that in all."""
    distances: tuple[int, int] = (12, 32)
    """To another node of the same socket, and of another one."""
    devices: tuple[Bus, ...] = ()
    allowed: tuple[range, ...] = ()
    """CPUs of the process; empty: all."""
    possible: str = ""

    @property
    def cpus(self) -> list[int]:
        return sorted(cpu for runs in self.nodes.values() for run in runs for cpu in run)

    @property
    def gpu_nodes(self) -> list[int]:
        return [device.node for device in self.devices if device.code == 0x0302]

    def siblings(self, cpu: int) -> list[int]:
        cores = len(self.cpus) // self.threads
        return [cpu % cores + number * cores for number in range(self.threads)]

    def package(self, cpu: int) -> int:
        return cpu % (len(self.cpus) // self.threads) * self.threads * self.sockets // len(self.cpus)


def _bus(nodes: list[int], first: int = 0x10) -> tuple[Bus, ...]:
    return tuple(Bus(address=f"0000:{first + 4 * place:02x}:00.0", node=node) for place, node in enumerate(nodes))


DESKTOP = Machine(
    name="desktop", sockets=1, cores_per_cache=8,
    source="gist.github.com/denji: a GeForce RTX 2060 at 01:00.0 whose numa_node is -1",
    nodes={0: (range(16),)}, free_gib={0: 20},
    devices=(Bus(address="0000:00:02.0", node=-1, vendor=INTEL, code=0x0300),
             Bus(address="0000:01:00.0", node=-1, code=0x0300)),
)  # fmt: skip
DGX_H100 = Machine(
    name="dgx-h100", sockets=2, cores_per_cache=56, distances=(21, 21),
    source="github.com/vllm-project/vllm/issues/13855: GPUs 0-3 on 0-55,112-167, GPUs 4-7 on 56-111,168-223",
    nodes={0: (range(56), range(112, 168)), 1: (range(56, 112), range(168, 224))}, free_gib={0: 400, 1: 400},
    devices=(*_bus([0, 0, 0, 0, 1, 1, 1, 1]), Bus(address="0000:03:00.0", node=0, vendor=ASPEED, code=0x0300),
             Bus(address="0000:1d:00.0", node=0, vendor=MELLANOX, code=0x0207),
             Bus(address="0000:9d:00.0", node=1, vendor=MELLANOX, code=0x0207)),
)  # fmt: skip
EPYC_7251 = Machine(
    name="epyc-7251", sockets=1, cores_per_cache=1, distances=(16, 32),
    source="github.com/OpenNebula/one/issues/3256: lscpu of an EPYC 7251, four nodes 0,1,8,9 to 6,7,14,15, no GPU",
    nodes={node: (range(2 * node, 2 * node + 2), range(2 * node + 8, 2 * node + 10)) for node in range(4)},
    free_gib=dict.fromkeys(range(4), 6),
)  # fmt: skip
QUAD = Machine(
    name="quad-nps4", sockets=1,
    source="one socket of github.com/novitalabs/pegaflow/pull/72, machine 3: GPU 0 -> node 3 … GPU 3 -> node 0",
    nodes={node: (range(16 * node, 16 * node + 16),) for node in range(4)}, threads=1, devices=_bus([3, 2, 1, 0]),
)  # fmt: skip
DGX_A100 = Machine(
    name="dgx-a100", sockets=2, cores_per_cache=4,
    source="github.com/NVIDIA/nccl/issues/1505: GPUs 0,1 on 48-63,176-191, 2,3 on 16-31,144-159, 4,5 on "
    "112-127,240-255, 6,7 on 80-95,208-223; nodes 0, 2, 4 and 6 have no GPU",
    nodes={node: (range(16 * node, 16 * node + 16), range(16 * node + 128, 16 * node + 144)) for node in range(8)},
    devices=_bus([3, 3, 1, 1, 7, 7, 5, 5]),
)  # fmt: skip
GH200 = Machine(
    name="gh200", sockets=1, threads=1, cores_per_cache=72, distances=(80, 80),
    source="github.com/bytedance/xpu-perf/issues/129: nine nodes, CPUs 0-71 all on node 0",
    nodes={0: (range(72),), **dict.fromkeys(range(1, 9), ())},
    free_gib={0: 300, 1: 94, **dict.fromkeys(range(2, 9), 0)},
    devices=(Bus(address="0009:01:00.0", node=0),),
)  # fmt: skip
SLURM = Machine(
    name="slurm-32-of-112", sockets=2, cores_per_cache=28, distances=(21, 21),
    source="github.com/rapidsai/dask-cuda/issues/1381: srun -c32, allowed 0-15,56-71; GPUs 4-7 on node 1 have none",
    nodes={0: (range(28), range(56, 84)), 1: (range(28, 56), range(84, 112))},
    devices=_bus([0, 0, 0, 0, 1, 1, 1, 1]), allowed=(range(16), range(56, 72)),
)  # fmt: skip
MACHINES = (DESKTOP, DGX_H100, EPYC_7251, QUAD, DGX_A100, GH200, SLURM)


def build(root: Path, machine: Machine) -> Path:
    """Write the tree."""
    files: dict[str, str] = {}
    node_folder, cpu_folder = "sys/devices/system/node", "sys/devices/system/cpu"
    allowed = sorted(cpu for run in machine.allowed for cpu in run) or machine.cpus
    files[f"{cpu_folder}/online"] = _list(machine.cpus)
    files[f"{node_folder}/online"] = _list(machine.nodes)
    files[f"{node_folder}/possible"] = machine.possible or _list(machine.nodes)
    files["proc/self/status"] = f"Name:\tpython\nCpus_allowed_list:\t{_list(allowed)}\nMems_allowed_list:\t0-8\n"
    for node, runs in machine.nodes.items():
        cpus = [cpu for run in runs for cpu in run]
        files[f"{node_folder}/node{node}/cpulist"] = _list(cpus)
        files[f"{node_folder}/node{node}/distance"] = _distances(machine, node)
        files[f"{node_folder}/node{node}/meminfo"] = _meminfo(node, machine.free_gib.get(node, 48) * GIB_KB)
        files[f"{node_folder}/node{node}/hugepages/hugepages-2048kB/free_hugepages"] = "0"
        for cpu in cpus:
            files |= _cpu(machine, f"{cpu_folder}/cpu{cpu}", cpu, cpus)
    for device in machine.devices:
        files |= _device(machine, device)
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    return root


def _distances(machine: Machine, node: int) -> str:
    def socket(other: int) -> int:
        runs = machine.nodes[other]
        return machine.package(runs[0][0]) if runs else 0

    near, far = machine.distances
    return " ".join("10" if other == node else str(near if socket(other) == socket(node) else far)
                    for other in machine.nodes)  # fmt: skip


def _meminfo(node: int, free: int) -> str:
    sizes = {"MemTotal": 4 * free, "MemFree": free, "Active(file)": free // 2, "Inactive(file)": free - free // 2}
    return "\n".join(f"Node {node} {name + ':':<16}{size} kB" for name, size in sizes.items())


def _cpu(machine: Machine, folder: str, cpu: int, node_cpus: list[int]) -> dict[str, str]:
    cores = len(machine.cpus) // machine.threads
    complex_ = [
        other
        for other in node_cpus
        if other % cores // machine.cores_per_cache == cpu % cores // machine.cores_per_cache
    ]
    return {
        f"{folder}/topology/thread_siblings_list": _list(machine.siblings(cpu)),
        f"{folder}/topology/physical_package_id": str(machine.package(cpu)),
        f"{folder}/cache/index0/type": "Data",
        f"{folder}/cache/index0/level": "1",
        f"{folder}/cache/index0/shared_cpu_list": _list(machine.siblings(cpu)),
        f"{folder}/cache/index1/type": "Instruction",
        f"{folder}/cache/index3/type": "Unified",
        f"{folder}/cache/index3/level": "3",
        f"{folder}/cache/index3/shared_cpu_list": _list(complex_),
    }


def _device(machine: Machine, device: Bus) -> dict[str, str]:
    folder = f"sys/bus/pci/devices/{device.address}"
    near = machine.nodes.get(device.node, (range(len(machine.cpus)),))
    return {
        f"{folder}/class": f"0x{device.code:04x}00",
        f"{folder}/vendor": f"0x{device.vendor:04x}",
        f"{folder}/numa_node": str(device.node),
        f"{folder}/local_cpulist": _list(cpu for run in near for cpu in run),
    }


def _list(numbers: object) -> str:
    """Not the code under test: every number by itself is a list, too."""
    return ",".join(map(str, sorted(numbers)))  # type: ignore[call-overload]
