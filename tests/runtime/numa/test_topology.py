"""Reading machines: what their published lists say is what is read, and no mutilation of a file is a crash."""

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memplan.runtime.numa.placement import Demand
from memplan.runtime.numa.plan import place
from memplan.runtime.numa.records import Topology
from memplan.runtime.numa.system_files import SystemFiles, format_list, parse_list
from memplan.runtime.numa.topology import read_topology, this_machine
from tests.runtime.numa.check import check
from tests.runtime.numa.conftest import Trees
from tests.runtime.numa.machines import (
    DESKTOP,
    DGX_A100,
    DGX_H100,
    EPYC_7251,
    GH200,
    MACHINES,
    NVIDIA,
    SLURM,
    Machine,
    build,
)

Read = Callable[..., Topology]


@pytest.fixture
def read(trees: Trees, tmp_path: Path) -> Read:
    def reading(machine: Machine, changed: Mapping[str, str | None] | None = None, **more: object) -> Topology:
        root = build(tmp_path / machine.name, machine) if changed else trees(machine)
        for path, text in (changed or {}).items():
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            if text is None:
                file.unlink()
            else:
                file.write_text(text)
        return read_topology(SystemFiles(root), **more)

    return reading


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_a_machine_is_read_as_it_was_published(read: Read, machine: Machine) -> None:
    topology = read(machine)
    assert {node.index: set(node.cpus) for node in topology.nodes} == {
        node: {cpu for run in runs for cpu in run} for node, runs in machine.nodes.items()
    }
    assert [gpu.node for gpu in topology.gpus] == [max(node, 0) for node in machine.gpu_nodes] or machine is DESKTOP
    assert topology.notes == ()
    for node in topology.nodes:
        assert node.free_bytes == machine.free_gib.get(node.index, 48) << 30
        assert node.cache_bytes == node.free_bytes
        assert node.distance(node.index) == 10
        for core in node.cores:
            assert list(core.cpus) == machine.siblings(core.first)
            assert core.package == machine.package(core.first)


def test_cores_of_a_complex_stand_together(read: Read) -> None:
    caches = [core.cache for core in read(DGX_A100).nodes[3].cores]
    assert caches == [48] * 4 + [52] * 4 + [56] * 4 + [60] * 4


def test_a_desktop_has_one_gpu_and_one_node(read: Read) -> None:
    (gpu,) = read(DESKTOP).gpus
    assert (gpu.address, gpu.node, gpu.told_by) == ("0000:01:00.0", 0, "local_cpulist")


def test_network_cards_have_nodes_and_a_management_card_is_no_gpu(read: Read) -> None:
    devices = read(DGX_H100).devices
    assert [(card.address, card.node) for card in devices if card.kind == "nic"] == [
        ("0000:1d:00.0", 0), ("0000:9d:00.0", 1)
    ]  # fmt: skip
    assert len([gpu for gpu in devices if gpu.kind == "gpu"]) == 8


def test_a_node_without_cpus_is_a_node(read: Read) -> None:
    topology = read(GH200)
    assert [len(node.cores) for node in topology.nodes] == [72, *[0] * 8]
    assert topology.nodes[1].free_bytes == 94 << 30


def test_limits_of_the_process(read: Read) -> None:
    assert read(SLURM).allowed_cpus == {*range(16), *range(56, 72)}
    assert not read(SLURM).nodes[1].cores


@pytest.mark.parametrize(
    "files",
    [
        {"proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/job/cpuset.cpus.effective": "4-7"},
        {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpuset.cpus.effective": "4-7"},
        {"proc/self/cgroup": "3:cpuset:/job\n", "sys/fs/cgroup/cpuset/job/cpuset.effective_cpus": "4-7"},
        {"proc/self/cgroup": "3:cpuset:/../../elsewhere\n", "sys/fs/cgroup/cpuset/cpuset.effective_cpus": "4-7"},
        {
            "proc/self/cgroup": "3:cpuset:/../x\n",
            "sys/fs/cgroup/cpuset/cpuset.effective_cpus": "4-7",
            "sys/fs/cgroup/x/cpuset.effective_cpus": "0",
        },
        {"proc/self/status": "Cpus_allowed_list:\t4-7\n"},
    ],
)
def test_control_groups_and_affinity_limit_cpus(read: Read, files: Mapping[str, str]) -> None:
    assert read(EPYC_7251, files).allowed_cpus == {4, 5, 6, 7}


@pytest.mark.parametrize(
    ("files", "cpus", "memory"),
    [
        ({"sys/fs/cgroup/cpu.max": "800000 100000", "sys/fs/cgroup/memory.max": "1073741824"}, 8.0, 1 << 30),
        ({"sys/fs/cgroup/cpu.max": "max 100000", "sys/fs/cgroup/memory.max": "max"}, None, None),
        (
            {
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
            },
            1.5,
            None,
        ),
    ],
)
def test_control_groups_limit_time_and_memory(
    read: Read, files: Mapping[str, str], cpus: float | None, memory: int | None
) -> None:
    topology = read(EPYC_7251, files)
    assert (topology.cpu_limit, topology.memory_limit) == (cpus, memory)


def test_memory_nodes_may_be_forbidden(read: Read) -> None:
    topology = read(EPYC_7251, {"proc/self/status": "Mems_allowed_list:\t1\n"})
    assert [node.memory_allowed for node in topology.nodes] == [False, True, False, False]
    assert topology.nodes[0].available_bytes == 0


def test_a_system_without_numa_is_one_node(tmp_path: Path) -> None:
    for name, text in {
        "sys/devices/system/cpu/online": "0-7",
        "proc/meminfo": "MemTotal: 1000 kB\nMemFree: 500 kB",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    topology = read_topology(SystemFiles(tmp_path))
    (node,) = topology.nodes
    assert (node.cpus, node.total_bytes, node.free_bytes) == (tuple(range(8)), 1024000, 512000)
    assert topology.notes == ("the system tells of no NUMA nodes: it is taken for one node",)


def test_an_empty_folder_is_one_cpu(tmp_path: Path) -> None:
    topology = read_topology(SystemFiles(tmp_path))
    assert topology.allowed_cpus == {0}
    assert check(topology, place(topology), Demand()) == ()


def test_a_gpu_without_a_node_is_told(read: Read) -> None:
    folder = "sys/bus/pci/devices/0000:10:00.0"
    topology = read(DGX_H100, {f"{folder}/numa_node": "-1", f"{folder}/local_cpulist": None})
    assert (topology.gpus[0].node, topology.gpus[0].told_by) == (None, "")
    assert any("does not say which node" in note for note in place(topology).notes)


def test_a_gpu_without_a_node_has_that_of_its_cpus(read: Read) -> None:
    topology = read(DGX_H100, {"sys/bus/pci/devices/0000:20:00.0/numa_node": "-1"})
    assert (topology.gpus[4].node, topology.gpus[4].told_by) == (1, "local_cpulist")


def test_a_gpu_near_all_cpus_is_near_no_node(read: Read) -> None:
    folder = "sys/bus/pci/devices/0000:10:00.0"
    topology = read(DGX_H100, {f"{folder}/numa_node": "-1", f"{folder}/local_cpulist": "0-223"})
    assert topology.gpus[0].node is None


def test_a_cpu_is_in_one_node(read: Read) -> None:
    topology = read(EPYC_7251, {"sys/devices/system/node/node1/cpulist": "0-3,10-11"})
    assert [node.cpus for node in topology.nodes[:2]] == [(0, 1, 8, 9), (2, 3, 10, 11)]
    assert topology.notes == ("node 1 names CPUs of another node: those are left to that one",)


def test_cores_that_share_a_cache_stand_together_whatever_their_numbers(read: Read) -> None:
    caches = {
        f"sys/devices/system/cpu/cpu{cpu}/cache/index3/shared_cpu_list": f"{cpu % 2},{cpu % 2 + 2}" for cpu in range(4)
    }
    topology = read(
        EPYC_7251,
        {**caches, "sys/devices/system/node/node0/cpulist": "0-3", "sys/devices/system/node/node1/cpulist": "8-11"},
    )
    assert [core.first for core in topology.nodes[0].cores] == [0, 2, 1, 3]


def test_virtual_functions_are_no_cards(read: Read) -> None:
    topology = read(DGX_H100, {"sys/bus/pci/devices/0000:1d:00.0/physfn/vendor": "0x15b3"})
    assert [device.address for device in topology.devices if device.kind == "nic"] == ["0000:9d:00.0"]


def test_amd_gpus_are_found_by_class(read: Read) -> None:
    devices = tuple(
        replace(device, vendor=0x1002, code=0x1200) for device in DGX_H100.devices if device.vendor == NVIDIA
    )
    topology = read(replace(DGX_H100, name="amd", devices=devices), environment={"HIP_VISIBLE_DEVICES": "5,1"})
    assert [(gpu.vendor, gpu.node) for gpu in topology.gpus] == [("amd", 1), ("amd", 0)]


def test_what_was_read_can_be_read_again(trees: Trees, tmp_path: Path) -> None:
    files = SystemFiles(trees(DGX_A100))
    first = read_topology(files)
    assert files.save(tmp_path / "copy") > 500
    assert read_topology(SystemFiles(tmp_path / "copy")) == first


def test_this_machine_is_as_lscpu_and_the_scheduler_say() -> None:
    topology = this_machine()
    assert topology.allowed_cpus == os.sched_getaffinity(0)
    done = subprocess.run(["lscpu", "-p=CPU,NODE"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("no lscpu")
    told = dict(line.split(",") for line in done.stdout.splitlines() if not line.startswith("#"))
    assert {str(cpu): str(node.index) for node in topology.nodes for cpu in node.cpus} == {
        cpu: node or "0" for cpu, node in told.items()
    }


@given(st.sets(st.integers(0, 8191), max_size=60))
def test_lists_are_read_as_they_are_written(numbers: set[int]) -> None:
    text = format_list(numbers)
    assert set(parse_list(text)) == numbers
    assert "," not in text or re.fullmatch(r"[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)+", text)


@pytest.mark.parametrize("text", ["a", "1-", "-1", "3-1", "1,,2", "0-99999999999", "1 2", "٣"])
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="number"):
        parse_list(text)


ROTTEN = st.one_of(
    st.none(),
    st.sampled_from(
        ["", "-1", "99", "0-3", "0-1000000", "0", "max", "0x", "1,2,x", "\x00", "Node 0 MemFree: -5 kB", "10"]
    ),
    st.text(max_size=12),
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([EPYC_7251, DESKTOP, SLURM]), st.data())
def test_rotten_files_are_noted_and_never_a_crash(
    tmp_path_factory: pytest.TempPathFactory, machine: Machine, data: st.DataObject
) -> None:
    root = build(tmp_path_factory.mktemp("rotten"), machine)
    files = sorted(path for path in root.rglob("*") if path.is_file())
    for file in data.draw(st.lists(st.sampled_from(files), max_size=12, unique=True)):
        text = data.draw(ROTTEN)
        file.unlink() if text is None else file.write_text(text)
    topology = read_topology(SystemFiles(root))
    cpus = [cpu for node in topology.nodes for cpu in node.cpus]
    assert len(cpus) == len(set(cpus))
    assert topology.allowed_cpus
    demand = Demand(workers=1, pinned_bytes=1 << 30)
    if len(topology.gpus) <= len(topology.allowed_cpus):
        assert check(topology, place(topology, demand), demand) == ()
