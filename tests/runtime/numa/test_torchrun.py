"""What memplan says of ``torchrun --numa-binding`` is what torch's own functions answer on the same files."""

import builtins
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from memplan.runtime.numa import torchrun
from memplan.runtime.numa.commands import commands
from memplan.runtime.numa.plan import place
from memplan.runtime.numa.records import Topology
from memplan.runtime.numa.system_files import SystemFiles
from memplan.runtime.numa.topology import read_topology
from memplan.versions import at_least
from tests.runtime.numa.conftest import Trees
from tests.runtime.numa.machines import (
    DESKTOP,
    DGX_A100,
    DGX_H100,
    GH200,
    MACHINES,
    QUAD,
    SLURM,
    Machine,
    build,
)

binding = pytest.importorskip("torch.numa.binding", reason="torch 2.9 is the first that binds")
WHICH = "device_index" if at_least(torch.__version__, "2.14") else "gpu_index"


@contextmanager
def torch_on(root: Path, topology: Topology, patch: pytest.MonkeyPatch) -> Iterator[Callable[[int, str], object]]:
    """torch's own code, its files and its GPUs those of the tree."""
    opened, listed = builtins.open, os.listdir

    def moved(path: object) -> object:
        return f"{root}{path}" if str(path).startswith("/sys/") else path

    def properties(index: int) -> SimpleNamespace:
        domain, bus, rest = topology.gpus[index].address.split(":")
        return SimpleNamespace(
            pci_domain_id=int(domain, 16), pci_bus_id=int(bus, 16), pci_device_id=int(rest.partition(".")[0], 16)
        )

    def answer(index: int, mode: str) -> object:
        options = binding.NumaOptions(affinity_mode=binding.AffinityMode(mode))
        try:
            return frozenset(binding._get_validated_logical_cpus_to_bind_to(**{WHICH: index}, numa_options=options))
        except (RuntimeError, ValueError, OSError, ZeroDivisionError):
            return "fails"

    with patch.context() as inner:
        inner.setattr(builtins, "open", lambda path, *more, **options: opened(moved(path), *more, **options))
        inner.setattr(os, "listdir", lambda path: listed(moved(path)))
        inner.setattr(os, "sched_getaffinity", lambda thread: set(topology.allowed_cpus))
        inner.setattr(torch.cuda, "get_device_properties", properties)
        inner.setattr(torch.cuda, "device_count", lambda: len(topology.gpus))
        inner.setattr(torch.accelerator, "device_count", lambda: len(topology.gpus))
        inner.setattr(torch.accelerator, "is_available", lambda: True)
        inner.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
        inner.setattr(binding.shutil, "which", lambda name: name)
        yield answer


CASES = (
    *MACHINES,
    replace(DGX_H100, name="more-possible-nodes", possible="0-3"),
    replace(DGX_A100, name="fewer-cpus", allowed=(range(50, 70), range(112, 120), range(200, 256))),
    replace(DGX_H100, name="second-threads", allowed=(range(4, 21), range(56, 64), range(112, 116))),
    replace(QUAD, name="threads-of-few-cores", threads=2, allowed=(range(0, 64, 3),)),
)


@pytest.mark.parametrize("machine", CASES, ids=lambda machine: machine.name)
def test_the_table_says_what_torch_does(trees: Trees, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    root = trees(machine)
    topology = read_topology(SystemFiles(root))
    for mode in torchrun.MODES:
        ours = ["fails" if isinstance(found, str) else found for found in torchrun.bindings(topology, mode)]
        with torch_on(root, topology, monkeypatch) as answer:
            theirs = [answer(index, mode) for index in range(len(topology.gpus))]
        assert ours == theirs, mode


def test_torch_takes_a_gpu_that_is_not_told_for_one_of_node_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's list of near CPUs tells more than its ``numa_node`` here; memplan reads it, torch does not."""
    root = build(tmp_path, QUAD)
    (root / "sys/bus/pci/devices" / QUAD.devices[0].address / "numa_node").write_text("-1\n")
    topology = read_topology(SystemFiles(root))
    with torch_on(root, topology, monkeypatch) as answer:
        assert torchrun.bindings(topology, "node")[0] == answer(0, "node") == frozenset(range(16))
    assert place(topology).ranks[0].node == 3


def planned(trees: Trees, machine: Machine) -> tuple[Topology, torchrun.Mapping]:
    topology = read_topology(SystemFiles(trees(machine)))
    return topology, torchrun.differences(topology, place(topology))


def test_exclusive_is_the_plan_on_a_dgx(trees: Trees) -> None:
    topology, found = planned(trees, DGX_H100)
    assert found == {"exclusive": "", "node": "ranks share CPUs", "socket": "ranks share CPUs",
                     "core-complex": "ranks share CPUs"}  # fmt: skip
    words = commands(topology, place(topology)).torchrun
    assert words == ("torchrun", "--nproc-per-node=8", "--numa-binding=exclusive", "train.py")


def test_each_rank_has_a_complex_of_its_own_and_leaves_the_rest_idle(trees: Trees) -> None:
    assert planned(trees, DGX_A100)[1]["core-complex"] == "other CPUs for rank 0, 1, 2, 3, 4, 5, 6, 7"


@pytest.mark.parametrize(
    ("machine", "mode", "said"),
    [
        (GH200, "socket", "rank 0 fails: node 1, which is possible, has no CPU that may be used"),
        (SLURM, "exclusive", "rank 4 fails: node 1 has no CPU that may be used"),
        (SLURM, "socket", "rank 0 fails: node 1, which is possible, has no CPU that may be used"),
        (DESKTOP, "node", ""),
    ],
)
def test_where_torchrun_fails_it_is_told(trees: Trees, machine: Machine, mode: str, said: str) -> None:
    assert planned(trees, machine)[1][mode] == said


def test_the_modes_are_those_of_torch() -> None:
    assert {mode.value for mode in binding.AffinityMode} == set(torchrun.MODES)
