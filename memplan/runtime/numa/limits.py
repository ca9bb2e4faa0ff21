"""What the process may use: affinity, control groups of version 2 and 1, and the GPUs that it sees in their order.

Rules of ``CUDA_VISIBLE_DEVICES`` and its like: "CUDA environment variables" of the CUDA programming guide, and
``torch.cuda._parse_visible_devices`` of torch 2.13: the list ends at the first entry that is no device; a device named
twice leaves none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from memplan.runtime.numa.records import Device
from memplan.runtime.numa.system_files import SystemFiles, parse_list
from memplan.units import Bytes

_NO_LIMIT = 1 << 60
"""Version 1 writes "no limit" as a number just below 2 ** 63."""
VARIABLES: Mapping[str, tuple[str, ...]] = {
    "nvidia": ("CUDA_VISIBLE_DEVICES",),
    "amd": ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    "intel": (),
}
"""Vendor → variables, in the order in which they are applied; ROCm's runtime comes before HIP."""


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


def number_gpus(
    gpus: Sequence[Device], environment: Mapping[str, str], migs: Mapping[str, str]
) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """Give each visible GPU its number, the others following without one; and say what one should know.

    GPUs come in the order of the bus; ``migs`` maps the UUID of a MIG instance to that of its GPU.
    """
    seen, notes = list(gpus), []
    for name in VARIABLES.get(gpus[0].vendor, ()) if gpus else ():
        if name in environment:
            chosen = _chosen(environment[name], seen, migs)
            if chosen is None:
                notes.append(f"{name}={environment[name]} names GPUs by identity, which only their driver knows")
                continue
            seen = chosen
            notes.append(f"{name}={environment[name]} leaves {len(seen)} of {len(gpus)} GPUs")
    if environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID" and len({gpu.name for gpu in gpus if gpu.name}) > 1:
        notes.append("GPUs of several kinds: CUDA numbers the fastest first; set CUDA_DEVICE_ORDER=PCI_BUS_ID")
    numbered = [replace(gpu, index=number) for number, gpu in enumerate(seen)]
    hidden = [gpu for gpu in gpus if gpu.address not in {other.address for other in seen}]
    return (*numbered, *hidden), tuple(notes)


def _chosen(text: str, gpus: Sequence[Device], migs: Mapping[str, str]) -> list[Device] | None:
    """The GPUs of a list; None where it names them by identity and nobody knows the identities."""
    entries = [entry.strip() for entry in text.split(",")]
    if entries[0].startswith(("GPU-", "MIG-")) and not any(gpu.uuid for gpu in gpus):
        return None
    if len(set(entries)) < len(entries):
        return []
    chosen: list[Device] = []
    for entry in entries:
        gpu = _one(entry, gpus, migs)
        if gpu is None:
            break
        chosen.append(gpu)
    return chosen


def _one(entry: str, gpus: Sequence[Device], migs: Mapping[str, str]) -> Device | None:
    if entry.isascii() and entry.isdigit():
        return gpus[int(entry)] if len(entry) < 5 and int(entry) < len(gpus) else None
    if entry.startswith("MIG-"):
        # The older form, MIG-GPU-<uuid>/<instance>/<instance>, names its GPU.
        entry = migs.get(entry, entry.removeprefix("MIG-").partition("/")[0])
    found = [gpu for gpu in gpus if entry.startswith("GPU-") and gpu.uuid.startswith(entry)]
    return found[0] if len(found) == 1 else None
