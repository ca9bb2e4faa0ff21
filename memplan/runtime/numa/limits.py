"""What the process may use: affinity and control groups, version 2 and 1."""

from memplan.runtime.numa.cpulist import parse_list
from memplan.runtime.numa.system_files import SystemFiles
from memplan.units import Bytes

_NO_LIMIT = 1 << 60
"""Version 1 writes "no limit" as a number just below 2 ** 63."""


def allowed(files: SystemFiles) -> tuple[frozenset[int], frozenset[int]]:
    """CPUs and memory nodes that this process may use; an empty set: nothing is said.

    ``/proc/self/status`` has both as the kernel applies them: affinity and control group together (man 5 proc).
    """
    cpus = _status(files, "Cpus_allowed_list") & _cpuset(files, "cpuset.cpus.effective", "cpuset.effective_cpus")
    nodes = _status(files, "Mems_allowed_list") & _cpuset(files, "cpuset.mems.effective", "cpuset.effective_mems")
    return cpus.numbers, nodes.numbers


class _Limit:
    """A set of numbers, or everything."""

    def __init__(self, numbers: tuple[int, ...]) -> None:
        self.numbers = frozenset(numbers)

    def __and__(self, other: "_Limit") -> "_Limit":
        both = self.numbers & other.numbers if self.numbers and other.numbers else self.numbers | other.numbers
        return _Limit(tuple(both))


def _status(files: SystemFiles, key: str) -> _Limit:
    for line in files.text("proc/self/status").splitlines():
        name, _, value = line.partition(":")
        if name == key:
            try:
                return _Limit(parse_list(value))
            except ValueError as error:
                files.notes.append(f"{key} of /proc/self/status is no list of numbers: {error}")
    return _Limit(())


def _cpuset(files: SystemFiles, second: str, first: str) -> _Limit:
    groups = _groups(files)
    paths = (f"sys/fs/cgroup{groups.get('', '')}/{second}", f"sys/fs/cgroup/{second}",
             f"sys/fs/cgroup/cpuset{groups.get('cpuset', '')}/{first}", f"sys/fs/cgroup/cpuset/{first}")  # fmt: skip
    return next((_Limit(found) for path in paths if (found := files.list(path))), _Limit(()))


def cpu_limit(files: SystemFiles) -> float | None:
    """Processors' worth of time that the control group allows; None: no limit, or nothing is said."""
    groups = _groups(files)
    for folder in (f"sys/fs/cgroup{groups.get('', '')}", "sys/fs/cgroup"):
        quota, _, period = files.text(f"{folder}/cpu.max").partition(" ")
        if quota.isdigit() and period.isdigit() and int(quota) and int(period):
            return int(quota) / int(period)
    for folder in (f"sys/fs/cgroup/cpu{groups.get('cpu', '')}", "sys/fs/cgroup/cpu"):
        time, every = files.number(f"{folder}/cpu.cfs_quota_us", -1), files.number(f"{folder}/cpu.cfs_period_us")
        if time > 0 and every > 0:
            return time / every
    return None


def memory_limit(files: SystemFiles) -> Bytes | None:
    """Host memory that the control group allows; None: no limit, or nothing is said."""
    groups = _groups(files)
    paths = (f"sys/fs/cgroup{groups.get('', '')}/memory.max", "sys/fs/cgroup/memory.max",
             f"sys/fs/cgroup/memory{groups.get('memory', '')}/memory.limit_in_bytes",
             "sys/fs/cgroup/memory/memory.limit_in_bytes")  # fmt: skip
    sizes = [int(text) for path in paths if (text := files.text(path).strip()).isdecimal()]
    limited = [size for size in sizes if 0 < size < _NO_LIMIT]
    return Bytes(min(limited)) if limited else None


def _groups(files: SystemFiles) -> dict[str, str]:
    """Controller (version 2: empty) → path of this process's group."""
    found: dict[str, str] = {}
    for line in files.text("proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        # A path that climbs is of a group outside of this namespace, and of no use below /sys/fs/cgroup.
        if path.startswith("/") and ".." not in path.split("/"):
            found |= {name: path.rstrip("/") for name in controllers.split(",")}
    return found
