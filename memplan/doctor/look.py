"""Looking at this machine. Nothing is changed; torch is imported, and no context is made on a GPU."""

import contextlib
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from memplan.doctor.records import Checkup, DoctorCheck
from memplan.job.noise import quiet
from memplan.measure.cache import MOST_BYTES, default_folder
from memplan.seam.find import imported, is_expected, is_lost, owner_of
from memplan.seam.patch import Patch
from memplan.seam.releases import NEWEST_TRIED, tried
from memplan.seam.table import ROWS
from memplan.units import format_bytes
from memplan.versions import installed

NOT_INSTALLED = "unknown"
"""What ``installed`` says of a package that is not there."""

SOLVERS = (
    ("HiGHS", "highspy", "checkpoint-plan and the optimum of a graph file cannot be solved"),
    ("CBC", "pulp", "checkpoint-plan cannot be solved"),
    ("CP-SAT", "ortools", "reuse-plan searches without it"),
    ("numba", "numba", "reuse-plan searches 10 to 30 times slower"),
)
"""Name, package, and what it costs to lack it."""
EXTRAS = {
    "hf": (("transformers", "diffusers", "accelerate"), "targets hf: and preset:"),
    "compile": (("triton",), "--compile inductor for GPUs"),
    "solvers": (("numba", "ortools"), "reuse-plan: compiled search, CP-SAT; part of memplan where they have wheels"),
    "cluster": (("dask",), "sweep on several machines"),
    "ray": (("ray",), "sweep on a Ray cluster"),
    "arena": (("ninja",), "plan_arena: compiles its allocator"),
    "runtime": (
        ("nvidia-ml-py", "prometheus-client", "zstandard"),
        "what GPUs' driver says, metrics, compression",
    ),
    "adapters": (("peft", "bitsandbytes"), "--lora and --quantize"),
    "deepspeed": (("deepspeed",), "--parallel zero1 to zero3, which are approximated without it"),
}
"""Optional dependencies of memplan → packages, and what they are for."""


def look() -> Checkup:
    """Look for everything."""
    with quiet():
        return Checkup(checks=(*_versions(), *_seam(), *_solvers(), *_extras(), *_devices(), *_caches()))


def _versions() -> Iterator[DoctorCheck]:
    yield DoctorCheck(group="versions", name="memplan", found=installed("memplan"))
    yield DoctorCheck(group="versions", name="Python", found=platform.python_version())
    release = installed("torch")
    if imported("torch") is None:
        yield DoctorCheck(group="versions", name="torch", state="lost", note="it cannot be imported: nothing is traced")
        return
    day = tried(release)
    note = f"the whole test suite ran with this release on {day}" if day else _UNTRIED
    yield DoctorCheck(group="versions", name="torch", found=release, note=note)


_UNTRIED = f"never tried with this release; the newest that was is {NEWEST_TRIED}, and reports of newer ones say so"


def _seam() -> Iterator[DoctorCheck]:
    """Names of torch alone: other libraries are looked into when a job uses them, for importing them takes long."""
    if imported("torch") is None:
        return
    rows = [row for row in ROWS if row.package == "torch" and "*" not in row.path]
    lost = [row for row in rows if is_lost(row)]
    without = [row for row in rows if row not in lost and owner_of(row) is None]
    yield DoctorCheck(
        group="seam",
        name="names",
        found=f"{len(rows) - len(lost) - len(without)} of {len(rows)} names of torch that memplan uses or replaces",
        note=f"{len(ROWS) - len(rows)} more, of other libraries too, are looked up by the jobs that need them",
    )
    for row in without:
        yield DoctorCheck(group="seam", name=row.path, state="absent", note=_without(row))
    for row in lost:
        yield DoctorCheck(
            group="seam", name=row.path, state="lost", note=f"wanted so that {row.why}: no figure without it"
        )


def _without(row: Patch) -> str:
    if not is_expected(row):
        return f"is there from {row.since} on, and not needed before"
    return "not in this build, whose programs cannot call it" if row.kind == "replaced" else _NOT_IN_BUILD


_NOT_IN_BUILD = "not in this release or build, which can do without"


def _solvers() -> Iterator[DoctorCheck]:
    for name, package, cost in SOLVERS:
        release = installed(package)
        yield (
            DoctorCheck(group="solvers", name=name, found=f"{package} {release}")
            if release != NOT_INSTALLED
            else DoctorCheck(group="solvers", name=name, state="absent", note=f"{cost}: pip install {package}")
        )


def _extras() -> Iterator[DoctorCheck]:
    for extra, (packages, use) in EXTRAS.items():
        releases = {package: installed(package) for package in packages}
        missing = [package for package, release in releases.items() if release == NOT_INSTALLED]
        yield DoctorCheck(
            group="extras",
            name=extra,
            state="absent" if missing else "there",
            found=", ".join(f"{package} {release}" for package, release in releases.items() if package not in missing),
            note=f"{use}; not installed: {', '.join(missing)}" if missing else use,
        )


def _devices() -> Iterator[DoctorCheck]:
    from memplan.runtime.numa.topology import this_machine

    torch = imported("torch")
    count = torch.cuda.device_count() if torch is not None else 0
    names = [torch.cuda.get_device_properties(index).name for index in range(count)]
    yield (
        DoctorCheck(group="devices", name="CUDA", found=", ".join(names))
        if names
        else DoctorCheck(group="devices", name="CUDA", state="absent", note="nothing can be measured on a GPU here")
    )
    topology = this_machine()
    cores, size = os.cpu_count(), sum(node.total_bytes for node in topology.nodes)
    found = f"{len(topology.nodes)}, with {cores} CPUs and {format_bytes(size)}"
    yield DoctorCheck(group="devices", name="NUMA nodes", found=found)


def _caches() -> Iterator[DoctorCheck]:
    folder = default_folder()
    size, most = format_bytes(_size(folder)), format_bytes(MOST_BYTES)
    note = f"traces and estimates, at most {most}; MEMPLAN_CACHE_DIR names another place"
    yield DoctorCheck(group="caches", name="measured", found=f"{size} in {folder}", note=note)


def _size(folder: Path) -> int:
    size = 0
    for path in folder.rglob("*"):
        # Another process may be tidying up.
        with contextlib.suppress(OSError):
            size += path.stat().st_size if path.is_file() else 0
    return size
