"""NUMA: what reading, binding and pinning cost here, and what other machines' ranks would get from torchrun."""

import errno
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median

import pytest
import torch

from memplan.runtime.numa import syscalls
from memplan.runtime.numa.binding import bind
from memplan.runtime.numa.pinned import pinned_empty
from memplan.runtime.numa.placement import Demand
from memplan.runtime.numa.plan import place
from memplan.runtime.numa.records import Topology
from memplan.runtime.numa.system_files import SystemFiles
from memplan.runtime.numa.topology import read_topology, this_machine
from memplan.runtime.numa.torchrun import MODES
from runtime_figures.figure import Figure

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.runtime.numa.check import check
from tests.runtime.numa.machines import DGX_A100, MACHINES, build
from tests.runtime.numa.test_torchrun import torch_on

Cpus = frozenset[int] | str


def figures(*, quick: bool) -> Iterator[Figure]:
    """All figures."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        yield from reading(root, 2 if quick else 20)
        yield from binding()
        yield from pinning(2 if quick else 15)
        for machine in MACHINES:
            yield from torchrun(build(root / f"t-{machine.name}", machine), machine.name)


def reading(root: Path, times: int) -> Iterator[Figure]:
    """The time of the two pure stages."""
    tree = build(root / "dgx", DGX_A100)
    topology = read_topology(SystemFiles(tree))
    demand = Demand(workers=8, pinned_bytes=16 << 30)
    yield Figure("read this machine's topology, NVML asked, median", f"{milliseconds(this_machine, times):.1f} ms")
    read = milliseconds(lambda: read_topology(SystemFiles(tree)), times)
    yield Figure("read a copy of a DGX A100 (8 nodes, 256 CPUs), median", f"{read:.1f} ms", "< 500 ms", read < 500)
    planned = milliseconds(lambda: place(topology, demand), times)
    yield Figure("place its 8 ranks with 8 workers and 16 GiB each", f"{planned:.2f} ms", "< 50 ms", planned < 50)


def milliseconds(action: Callable[[], object], times: int) -> float:
    """Median over some calls."""
    found = []
    for _ in range(times):
        started = time.perf_counter()
        action()
        found.append(time.perf_counter() - started)
    return 1000 * median(found)


def binding() -> Iterator[Figure]:
    """Does it work here?"""
    topology = this_machine()
    rank = place(topology, Demand(ranks=min(2, len(topology.allowed_cpus)))).ranks[-1]
    with bind(rank) as bound:
        right = os.sched_getaffinity(0) == set(rank.cpus) and not bound.reasons
        words = f"CPUs {min(bound.cpus)}-{max(bound.cpus)}, policy {bound.policy}; refused: {len(bound.reasons)}"
        yield Figure("bind rank 1 of 2 on this machine, read back from the kernel", words, "as planned", right)


def pinning(times: int) -> Iterator[Figure]:
    """Where pages lie, what that costs, what happens without permission."""
    node, shape = this_machine().nodes[0].index, (64 << 20,)
    had = pinned_empty(shape, dtype=torch.uint8, node=node)
    share = "not told" if had.share is None else f"{had.share:.1%}"
    yield Figure(f"64 MiB bound to node {node}: pages there by move_pages", share, "100 %", had.share == 1)
    ratios = []
    for _ in range(times):
        plain = milliseconds(lambda: torch.empty(shape, dtype=torch.uint8).zero_(), 1)
        ratios.append(milliseconds(lambda: pinned_empty(shape, dtype=torch.uint8, node=node), 1) / plain)
    yield Figure("its time over torch.empty().zero_() of 64 MiB, paired, median", f"{median(ratios):.2f} x")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(syscalls, "bind_range", refuse)
        had = pinned_empty(shape, dtype=torch.uint8, node=node)
    share = "not told" if had.share is None else f"{had.share:.1%} there"
    yield Figure("the same with mbind refused (EPERM, put in)", f"{share}; {had.reasons[0]}", "100 % by first touch",
                 had.share == 1)  # fmt: skip


def refuse(*_: object, **__: object) -> None:
    """What a container's filter answers."""
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


def torchrun(root: Path, name: str) -> Iterator[Figure]:
    """Ranks on their GPU's node, by torch's own functions on the machine's files, and by the plan."""
    topology = read_topology(SystemFiles(root))
    if not topology.gpus:
        return
    found: dict[str, list[Cpus]] = {}
    with pytest.MonkeyPatch.context() as patch, suppress(ImportError):
        for mode in MODES:
            with torch_on(root, topology, patch) as answer:
                found[mode] = [answer(index, mode) for index in range(len(topology.gpus))]
    placement = place(topology)
    found["plan"] = [frozenset(rank.cpus) for rank in placement.ranks]
    sound = check(topology, placement, Demand()) == ()
    best = max(at_home(topology, cpus) for cpus in found.values())
    words = "; ".join(f"{mode} {told(topology, cpus)}" for mode, cpus in found.items())
    goal = "plan: as many at home as any mode, none fails, none shares"
    met = sound and at_home(topology, found["plan"]) == best and "sharing" not in told(topology, found["plan"])
    yield Figure(f"{name}: {len(topology.gpus)} ranks, at home", words, goal, met)


def told(topology: Topology, cpus: list[Cpus]) -> str:
    """At home of all, and what is wrong."""
    bound = [each for each in cpus if isinstance(each, frozenset)]
    sharing = sum(
        any(one & other for place_, other in enumerate(bound) if place_ != at) for at, one in enumerate(bound)
    )
    failing = len(cpus) - len(bound)
    words = [f"{at_home(topology, cpus)}/{len(cpus)}"]
    idle = 1 - len(frozenset().union(*bound)) / len(topology.allowed_cpus)
    words += [f"{idle:.0%} of CPUs idle"] if idle > 0.005 else []
    words += [f"{sharing} sharing CPUs"] if sharing else []
    words += [f"{failing} fail"] if failing else []
    return " ".join(words)


def at_home(topology: Topology, cpus: list[Cpus]) -> int:
    """Ranks all of whose CPUs are of their GPU's node."""
    homes = [set(topology.by_index[gpu.node].cpus) if gpu.node is not None else set() for gpu in topology.gpus]
    return sum(
        isinstance(each, frozenset) and bool(each) and each <= home for each, home in zip(cpus, homes, strict=True)
    )
