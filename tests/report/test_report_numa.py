"""The reports of ``numa``: what is told, lines keep their width, JSON obeys its schema."""

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from rich.cells import cell_len
from syrupy.assertion import SnapshotAssertion

from memplan.report.numa import json as numa_json
from memplan.report.numa import text as numa
from memplan.runtime.numa.commands import commands
from memplan.runtime.numa.placement import Demand, MachinePlacement
from memplan.runtime.numa.plan import place
from memplan.runtime.numa.records import Topology
from memplan.runtime.numa.system_files import SystemFiles
from memplan.runtime.numa.topology import read_topology
from memplan.units import GIB, Bytes
from tests.contract.goldens import obey
from tests.runtime.numa.machines import DGX_A100, DGX_H100, GH200, MACHINES, SLURM, Machine, build

HEAVY = Demand(workers=3, pinned_bytes=Bytes(60 * GIB))


def planned(folder: Path, machine: Machine, demand: Demand = HEAVY) -> tuple[Topology, MachinePlacement]:
    topology = read_topology(SystemFiles(build(folder, machine)))
    return topology, place(topology, demand)


def text(topology: Topology, placement: MachinePlacement, width: int = 80, *, quiet: bool = False) -> list[str]:
    lines = numa.render(topology, placement, commands(topology, placement), width=width, quiet=quiet)
    return [line.plain for line in lines]


@pytest.mark.parametrize("machine", [DGX_H100, SLURM, GH200], ids=lambda machine: machine.name)
def test_the_text(tmp_path: Path, machine: Machine, snapshot: SnapshotAssertion) -> None:
    lines = text(*planned(tmp_path, machine))
    assert "\n".join(lines[1:]) == snapshot  # The first line has memplan's version.


def test_every_cpu_of_a_line_is_told_at_any_width(tmp_path: Path) -> None:
    topology, placement = planned(tmp_path, DGX_A100)
    for width in (60, 80, 100):
        lines = text(topology, placement, width)
        assert all(cell_len(line) <= width for line in lines)
        typed = "\n".join(lines).replace(" \\\n    ", " ")
        for rank in placement.ranks:
            assert f"--physcpubind={rank.cpus[0]}-" in typed


def test_quiet_is_what_can_be_typed(tmp_path: Path) -> None:
    lines = text(*planned(tmp_path, DGX_H100), quiet=True)
    starts = [line.split()[0] for line in lines if not line.startswith("    ")]
    assert [start.partition("=")[0] for start in starts] == [*["OMP_NUM_THREADS"] * 8, "torchrun", "numactl"]


def test_a_device_without_a_node_and_odd_names_are_shown(tmp_path: Path) -> None:
    topology, placement = planned(tmp_path, DGX_H100)
    lost = replace(topology.devices[0], node=None, name="\x1b[31mH100")
    lines = text(replace(topology, devices=(lost, *topology.devices[1:])), placement)
    told = lines.index("node not told")
    assert "GPU 0" in lines[told + 1]
    assert not any("\x1b" in line for line in lines)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_json_obeys_its_schema(tmp_path: Path, machine: Machine) -> None:
    topology, placement = planned(tmp_path, machine)
    content = json.loads(numa_json.render(topology, placement, commands(topology, placement)))
    obey("numa", content)
    assert [rank["cpus"] for rank in content["placement"]["ranks"]] == [list(rank.cpus) for rank in placement.ranks]
    for break_ in (("placement", "state", "fine"), ("placement", "short_bytes", -1), ("topology", "nodes", [])):
        broken = json.loads(json.dumps(content))
        broken[break_[0]][break_[1]] = break_[2]
        with pytest.raises(jsonschema.ValidationError):
            obey("numa", broken)
