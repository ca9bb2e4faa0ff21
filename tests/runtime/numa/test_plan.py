"""Placements: what is right on known machines, and laws on any, held by a validator that shares no code."""

from dataclasses import replace

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from memplan.errors import UsageError
from memplan.runtime.numa.placement import Demand, MachinePlacement, RankPlacement
from memplan.runtime.numa.plan import place
from memplan.runtime.numa.records import Core, Device, NumaNode, Topology
from memplan.runtime.numa.system_files import SystemFiles
from memplan.runtime.numa.topology import read_topology
from memplan.units import GIB, Bytes
from tests.runtime.numa.check import check
from tests.runtime.numa.conftest import Trees
from tests.runtime.numa.machines import DESKTOP, DGX_A100, DGX_H100, EPYC_7251, GH200, MACHINES, SLURM, Machine


def machine_of(trees: Trees, machine: Machine) -> Topology:
    return read_topology(SystemFiles(trees(machine)))


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_every_rank_is_at_home_where_that_can_be(trees: Trees, machine: Machine) -> None:
    topology = machine_of(trees, machine)
    demand = Demand(workers=4, pinned_bytes=Bytes(4 * GIB))
    placement = place(topology, demand)
    assert check(topology, placement, demand) == ()
    assert placement.state == "local"
    nodes = machine.gpu_nodes or ([0] if machine is DESKTOP else [0, 1, 2, 3])
    expected = [0] * 8 if machine is SLURM else nodes  # Node 1 has no CPU that may be used.
    assert [rank.node for rank in placement.ranks] == expected


def test_cores_of_a_dgx_are_shared_out(trees: Trees) -> None:
    placement = place(machine_of(trees, DGX_H100), Demand(workers=4))
    assert placement.ranks[1].cpus == (*range(14, 28), *range(126, 140))
    assert placement.ranks[7].cpus == (*range(98, 112), *range(210, 224))
    assert placement.ranks[0].workers == ((10, 122), (11, 123), (12, 124), (13, 125))
    assert len(placement.ranks[0].main_cores) == 10
    assert placement.interleave == (0, 1)


def test_idle_nodes_are_told(trees: Trees) -> None:
    assert place(machine_of(trees, DGX_A100)).notes == ("no rank is on node 0,2,4,6, whose 128 CPUs stay idle",)


def test_memory_spills_to_the_nearest_node(trees: Trees) -> None:
    placement = place(machine_of(trees, DGX_A100), Demand(pinned_bytes=Bytes(60 * GIB)))
    # 96 GiB can be had on node 3, and its two ranks ask for 120; nodes 0 and 2 are of the same socket, and idle.
    assert placement.state == "spilled"
    assert placement.ranks[0].pinned == ((3, 48 * GIB), (0, 12 * GIB))
    assert any("120.00 GiB of pinned memory do not fit in the 96.00 GiB of node 3" in note for note in placement.notes)


def test_memory_that_is_nowhere_is_said_to_be_short(trees: Trees) -> None:
    topology = machine_of(trees, DESKTOP)
    placement = place(topology, Demand(pinned_bytes=Bytes(100 * GIB)))
    assert (placement.state, placement.short_bytes) == ("short", 60 * GIB)


def test_page_cache_and_limits_are_told(trees: Trees) -> None:
    topology = replace(machine_of(trees, DESKTOP), memory_limit=Bytes(8 * GIB), cpu_limit=2.0)
    placement = place(topology, Demand(pinned_bytes=Bytes(30 * GIB)))
    assert placement.notes == (
        "the control group allows 2 processors' worth of time on 16 CPUs",
        "node 0 has 30.00 GiB only after dropping page cache",
        "30.00 GiB of pinned memory are more than the control group's limit of 8.00 GiB",
    )


def test_gpu_memory_is_the_last_place_for_pinned_memory(trees: Trees) -> None:
    topology = machine_of(trees, GH200)
    assert place(topology, Demand(pinned_bytes=Bytes(500 * GIB))).ranks[0].pinned == ((0, 500 * GIB),)
    assert place(topology, Demand(pinned_bytes=Bytes(610 * GIB))).ranks[0].pinned == ((0, 600 * GIB), (1, 10 * GIB))
    assert place(topology).interleave == (0,)


def test_a_nearer_node_without_cpus_comes_after_a_farther_one_with(trees: Trees) -> None:
    topology = machine_of(trees, EPYC_7251)
    first, second, third, fourth = topology.nodes
    lone = replace(third, cpus=(), cores=(), distances={})
    topology = replace(topology, nodes=(replace(first, distances={0: 10, 1: 32, 2: 11, 3: 40}), second, lone, fourth))
    placement = place(topology, Demand(ranks=1, pinned_bytes=Bytes(40 * GIB)))
    assert placement.ranks[0].pinned == ((0, 12 * GIB), (1, 12 * GIB), (3, 12 * GIB), (2, 4 * GIB))


def test_a_node_without_memory_takes_that_of_the_nearest(trees: Trees) -> None:
    topology = machine_of(trees, EPYC_7251)
    bare = replace(
        topology.nodes[2], total_bytes=0, free_bytes=0, cache_bytes=0, distances={0: 20, 1: 16, 2: 10, 3: 12}
    )
    topology = replace(topology, nodes=(*topology.nodes[:2], bare, topology.nodes[3]))
    demand = Demand(ranks=4, pinned_bytes=Bytes(GIB))
    placement = place(topology, demand)
    assert placement.ranks[2].memory_node == 3
    assert placement.state == "spilled"
    assert check(topology, placement, demand) == ()


def test_more_ranks_than_cores_share_cores_and_more_than_cpus_is_an_error(trees: Trees) -> None:
    topology = machine_of(trees, EPYC_7251)
    placement = place(topology, Demand(ranks=16))
    assert sorted(rank.cpus for rank in placement.ranks) == [(cpu,) for cpu in range(16)]
    with pytest.raises(UsageError, match="17 ranks do not fit on the 16 CPUs"):
        place(topology, Demand(ranks=17))


def test_more_ranks_than_gpus_share_gpus(trees: Trees) -> None:
    placement = place(machine_of(trees, DGX_H100), Demand(ranks=10))
    assert [rank.gpu.index for rank in placement.ranks if rank.gpu] == [*range(8), 0, 1]
    assert "10 ranks share 8 GPUs" in placement.notes


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Any machine: nodes without CPUs or memory, barred CPUs, GPUs anywhere or nowhere, lopsided distances."""
    numbers = draw(st.lists(st.integers(0, 12), min_size=1, max_size=5, unique=True).map(sorted))
    cpu = iter(range(1000))
    nodes = []
    for number in numbers:
        threads = draw(st.integers(1, 2))
        cores = []
        for _ in range(draw(st.integers(0, 6))):
            own = [next(cpu) for _ in range(threads)]
            kept = draw(st.lists(st.sampled_from(own), unique=True).map(sorted))
            cores.append((own, kept))
        nodes.append(
            NumaNode(
                index=number,
                cpus=tuple(one for own, _ in cores for one in own),
                cores=tuple(
                    Core(cpus=tuple(kept), first=own[0], package=0, cache=cores[0][0][0]) for own, kept in cores if kept
                ),
                total_bytes=Bytes(1 << 20),
                free_bytes=Bytes(draw(st.integers(0, 100))),
                cache_bytes=Bytes(draw(st.integers(0, 50))),
                huge_free_bytes=Bytes(0),
                memory_allowed=draw(st.booleans()),
                distances={other: 10 if other == number else draw(st.integers(11, 40)) for other in numbers},
            )
        )
    if not any(node.cores for node in nodes):
        core = Core(cpus=(1000,), first=1000, package=0, cache=1000)
        nodes[0] = replace(nodes[0], cpus=(*nodes[0].cpus, 1000), cores=(core,))
    homes = draw(st.lists(st.sampled_from([*numbers, None]), max_size=6))
    gpus = tuple(
        Device(kind="gpu", address=str(place_), vendor="nvidia", name="", node=home, told_by="", index=place_)
        for place_, home in enumerate(homes)
    )
    return Topology(nodes=tuple(nodes), devices=gpus, possible_nodes=tuple(numbers), cpu_limit=None,
                    memory_limit=None, notes=())  # fmt: skip


@given(topologies(), st.integers(1, 12), st.integers(0, 5), st.integers(0, 80))
def test_any_placement_is_sound(topology: Topology, ranks: int, workers: int, pinned: int) -> None:
    demand = Demand(ranks=ranks, workers=workers, pinned_bytes=Bytes(pinned))
    if ranks > len(topology.allowed_cpus):
        with pytest.raises(UsageError):
            place(topology, demand)
        return
    placement = place(topology, demand)
    event(placement.state)
    assert check(topology, placement, demand) == ()
    assert place(topology, demand) == placement


def broken(placement: MachinePlacement, which: int, **changes: object) -> MachinePlacement:
    ranks = list(placement.ranks)
    ranks[which] = replace(ranks[which], **changes)
    return replace(placement, ranks=tuple(ranks))


def test_the_validator_finds_what_is_wrong(trees: Trees) -> None:
    """Each fault is put in by hand: a validator that never complains would prove nothing."""
    topology = machine_of(trees, DGX_H100)
    demand = Demand(ranks=8, workers=2, pinned_bytes=Bytes(GIB))
    good = place(topology, demand)
    first, second, last = good.ranks[0], good.ranks[1], good.ranks[7]

    def complaint(placement: MachinePlacement, asked: Demand = demand) -> str:
        return "\n".join(check(topology, placement, asked))

    assert complaint(good) == ""
    assert "not numbered" in complaint(broken(good, 3, rank=4))
    assert "ranks are placed" in complaint(good, replace(demand, ranks=9))
    assert "belongs to ranks 0 and 1" in complaint(broken(good, 1, cores=first.cores))
    assert "not an allowed one of node 0" in complaint(broken(good, 1, cores=last.cores))
    assert "are nobody's" in complaint(broken(good, 1, cores=second.cores[:-1]))
    assert "between 4 and 14 cores" in complaint(broken(good, 1, cores=second.cores[:4]))
    half = (replace(second.cores[0], cpus=second.cores[0].cpus[:1]), *second.cores[1:])
    assert "part of a core" in complaint(broken(good, 1, cores=half))
    assert "has no CPU" in complaint(broken(good, 1, cores=()))
    assert "which has room" in complaint(broken(good, 1, node=1, cores=last.cores))
    assert "says 'why not'" in complaint(broken(good, 1, reason="why not"))
    assert "has 1 workers" in complaint(broken(good, 1, workers=second.workers[:1]))
    assert "not on the rank's CPUs" in complaint(broken(good, 1, workers=first.workers))
    assert "own core" in complaint(broken(good, 1, workers=(second.cores[0].cpus,) * 2))
    assert "does not add up" in complaint(broken(good, 1, pinned=()))
    assert "has room" in complaint(broken(good, 1, pinned=((1, Bytes(GIB)),)))
    assert "the state is local, and should be spilled" in complaint(broken(good, 1, pinned=((1, Bytes(GIB)),)))
    assert "there is some left" in complaint(replace(good, state="short", short_bytes=Bytes(1)))
    huge = replace(demand, pinned_bytes=Bytes(900 * GIB))
    assert "is to hold" in complaint(broken(good, 1, pinned=((0, Bytes(900 * GIB)),)), huge)


def test_the_validator_wants_the_nearest_node() -> None:
    def node(index: int, cpus: tuple[int, ...], distances: dict[int, int]) -> NumaNode:
        cores = tuple(Core(cpus=(cpu,), first=cpu, package=0, cache=0) for cpu in cpus)
        none = Bytes(0)
        return NumaNode(index=index, cpus=cpus, cores=cores, total_bytes=none, free_bytes=none, cache_bytes=none,
                    huge_free_bytes=none, memory_allowed=True, distances=distances)  # fmt: skip

    nodes = (node(0, (), {0: 10, 1: 30, 2: 20}), node(1, (1,), {}), node(2, (2,), {}))
    gpu = Device(kind="gpu", address="x", vendor="nvidia", name="", node=0, told_by="numa_node", index=0)
    topology = Topology(
        nodes=nodes, devices=(gpu,), possible_nodes=(0, 1, 2), cpu_limit=None, memory_limit=None, notes=()
    )
    placement = place(topology)
    assert placement.ranks[0].node == 2
    moved = broken(placement, 0, node=1, cores=nodes[1].cores, memory_node=1)
    assert "could be on node 2, which is nearer" in "\n".join(check(topology, moved, Demand()))
    assert isinstance(placement.ranks[0], RankPlacement)
