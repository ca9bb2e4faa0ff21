"""Reading a machine's topology from ``/sys``. What is missing is replaced by the plainest guess, and noted.

Files: Documentation/ABI/stable/sysfs-devices-node, Documentation/ABI/stable/sysfs-devices-system-cpu of Linux.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from memplan.runtime.numa import limits
from memplan.runtime.numa.driver import DriverGpu, nvidia_gpus
from memplan.runtime.numa.limits import number_gpus
from memplan.runtime.numa.pci import find_devices
from memplan.runtime.numa.records import Core, NumaNode, Topology
from memplan.runtime.numa.system_files import SystemFiles
from memplan.units import KIB, Bytes

NODE = "sys/devices/system/node"
MAX_NODE = 1023
"""The most that a kernel is built for (CONFIG_NODES_SHIFT = 10)."""


def read_topology(
    files: SystemFiles, *, driver: Sequence[DriverGpu] | None = None, environment: Mapping[str, str] | None = None
) -> Topology:
    """Read a machine, this one or a copy of another one's files.

    Where the driver was not asked (None) all GPUs of the bus count; without an environment (``CUDA_VISIBLE_DEVICES``
    and the like) all are visible.
    """
    cpus, memory = limits.allowed(files)
    cpus_of = _cpus_of_nodes(files)
    if cpus and not cpus & set(chain(*cpus_of.values())):
        files.notes.append("no node has a CPU that this process may use: its limits are ignored")
        cpus = frozenset()
    memory = memory & set(cpus_of)
    nodes = tuple(_node(files, index, cpus_of, cpus, memory) for index in sorted(cpus_of))
    gpus, cards = find_devices(files, nodes, driver)
    migs = {mig: gpu.uuid for gpu in driver or () for mig in gpu.migs}
    numbered, notes = number_gpus(gpus, {} if environment is None else environment, migs)
    return Topology(
        nodes=nodes,
        devices=(*numbered, *cards),
        possible_nodes=files.list(f"{NODE}/possible") or tuple(cpus_of),
        cpu_limit=limits.cpu_limit(files),
        memory_limit=limits.memory_limit(files),
        notes=tuple(dict.fromkeys([*files.notes, *notes])),
    )


def this_machine(files: SystemFiles | None = None) -> Topology:
    """Read this machine, as this process sees it."""
    files = files or SystemFiles()
    driver, why = nvidia_gpus()
    topology = read_topology(files, driver=driver, environment=os.environ)
    if driver is None and any(device.vendor == "nvidia" for device in topology.gpus):
        return replace(
            topology, notes=(*topology.notes, f"{why}; the GPUs are those of the bus, a container may have fewer")
        )
    return topology


def _cpus_of_nodes(files: SystemFiles) -> dict[int, tuple[int, ...]]:
    """Node → its CPUs, each CPU in one node. One node with everything where the system tells of none."""
    online = files.list(f"{CPU}/online")
    found: dict[int, tuple[int, ...]] = {}
    taken: set[int] = set()
    for index in _node_numbers(files):
        cpus = files.list(f"{NODE}/node{index}/cpulist")
        if taken & set(cpus):
            files.notes.append(f"node {index} names CPUs of another node: those are left to that one")
        found[index] = tuple(cpu for cpu in cpus if cpu not in taken and (not online or cpu in online))
        taken |= set(cpus)
    if taken and any(found.values()):
        if left := set(online) - taken:
            files.notes.append(f"{len(left)} CPUs are online and in no node: they are left out")
        return found
    files.notes.append("the system tells of no NUMA nodes: it is taken for one node")
    every = online or tuple(sorted(limits.allowed(files)[0])) or (0,)
    return {**found, min(found, default=0): every}


def _node_numbers(files: SystemFiles) -> Iterable[int]:
    named = [int(name[4:]) for name in files.names(NODE) if re.fullmatch(r"node[0-9]{1,4}", name)]
    return sorted({number for number in (*files.list(f"{NODE}/online"), *named) if number <= MAX_NODE})


def _node(
    files: SystemFiles, index: int, cpus_of: Mapping[int, tuple[int, ...]], cpus: frozenset[int], memory: frozenset[int]
) -> NumaNode:
    sizes = _memory(files, index, alone=len(cpus_of) == 1)
    return NumaNode(
        index=index,
        cpus=cpus_of[index],
        cores=read_cores(files, cpus_of[index], cpus),
        total_bytes=sizes.get("MemTotal", Bytes(0)),
        free_bytes=sizes.get("MemFree", Bytes(0)),
        cache_bytes=Bytes(sizes.get("Active(file)", 0) + sizes.get("Inactive(file)", 0)),
        huge_free_bytes=_huge_free(files, index),
        memory_allowed=index in memory or not memory,
        distances=_distances(files, index, sorted(cpus_of)),
    )


def _memory(files: SystemFiles, index: int, *, alone: bool) -> dict[str, Bytes]:
    """``Node 0 MemFree:  1024 kB`` → sizes; a machine of one node may tell of it in /proc/meminfo only."""
    text = files.text(f"{NODE}/node{index}/meminfo") or (files.text("proc/meminfo") if alone else "")
    found = re.findall(r"^(?:Node +\d+ +)?(\S+): +(\d{1,15}) kB$", text, re.MULTILINE)
    return {name: Bytes(int(size) * KIB) for name, size in found}


def _huge_free(files: SystemFiles, index: int) -> Bytes:
    folder = f"{NODE}/node{index}/hugepages"
    sizes = [
        (name, int(match[1])) for name in files.names(folder) if (match := re.fullmatch(r"hugepages-(\d+)kB", name))
    ]
    return Bytes(sum(files.number(f"{folder}/{name}/free_hugepages") * size * KIB for name, size in sizes))


def _distances(files: SystemFiles, index: int, nodes: Sequence[int]) -> dict[int, int]:
    """One number for each node that is online, in their order."""
    words = files.text(f"{NODE}/node{index}/distance").split()
    if words and len(words) == len(nodes) and all(word.isdecimal() for word in words):
        return dict(zip(nodes, map(int, words), strict=True))
    if len(nodes) > 1:
        files.notes.append(f"node {index} tells no distances: every other node counts as equally far")
    return {}


CPU = "sys/devices/system/cpu"
_CACHES = ("Unified", "Data")


def read_cores(files: SystemFiles, cpus: tuple[int, ...], allowed: frozenset[int]) -> tuple[Core, ...]:
    """The cores of which something is allowed, those that share a cache side by side.

    An empty ``allowed`` allows everything.
    """
    caches = _grouped(cpus, lambda cpu: _last_cache(files, cpu))
    threads = _grouped(cpus, lambda cpu: files.list(f"{CPU}/cpu{cpu}/topology/thread_siblings_list"))
    siblings: dict[int, list[int]] = {}
    for cpu in cpus:
        if cpu in allowed or not allowed:
            siblings.setdefault(threads[cpu], []).append(cpu)
    packages = {cpu: files.number(f"{CPU}/cpu{cpu}/topology/physical_package_id") for cpu in siblings}
    cores = [
        Core(cpus=tuple(members), first=first, package=packages[first], cache=caches[first])
        for first, members in siblings.items()
    ]
    return tuple(sorted(cores, key=lambda core: (core.package, core.cache, core.first)))


def _grouped(cpus: tuple[int, ...], members: Callable[[int], tuple[int, ...]]) -> dict[int, int]:
    """CPU → lowest of its group within the node; the files of one member tell of all."""
    group: dict[int, int] = {}
    for cpu in cpus:
        if cpu not in group:
            group |= {member: cpu for member in (cpu, *members(cpu)) if member not in group}
    return group


def _last_cache(files: SystemFiles, cpu: int) -> tuple[int, ...]:
    folder = f"{CPU}/cpu{cpu}/cache"
    found = [name for name in files.names(folder) if re.fullmatch(r"index[0-9]+", name)]
    found = [name for name in found if files.text(f"{folder}/{name}/type") in _CACHES]
    if not found:
        return ()
    last = max(found, key=lambda name: files.number(f"{folder}/{name}/level"))
    return files.list(f"{folder}/{last}/shared_cpu_list")
