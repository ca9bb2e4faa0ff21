"""The physical cores of a node: hardware threads, sockets, last-level caches.

Files: Documentation/ABI/stable/sysfs-devices-system-cpu of Linux.
"""

import re
from collections.abc import Callable

from memplan.runtime.numa.records import Core
from memplan.runtime.numa.system_files import SystemFiles

CPU = "sys/devices/system/cpu"
_CACHES = ("Unified", "Data")


def read_cores(files: SystemFiles, cpus: tuple[int, ...], allowed: frozenset[int]) -> tuple[Core, ...]:
    """The cores of which something is allowed, those that share a cache side by side.

    Args:
        files: The machine.
        cpus: Of the node.
        allowed: What the process may use; empty: everything.
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
