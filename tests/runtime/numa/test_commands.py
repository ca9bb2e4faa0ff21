"""The lines that are printed do what they say: run with the real numactl, read back from inside the process."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memplan.runtime.numa.commands import commands, joined, rank_words, script, wrapped
from memplan.runtime.numa.placement import Demand, MachinePlacement
from memplan.runtime.numa.plan import place
from memplan.runtime.numa.records import Topology
from memplan.runtime.numa.system_files import SystemFiles, format_list, mask
from memplan.runtime.numa.topology import read_topology, this_machine
from memplan.units import Bytes
from tests.runtime.numa.conftest import Trees
from tests.runtime.numa.machines import DGX_A100, DGX_H100, EPYC_7251, SLURM, Machine

needs_numactl = pytest.mark.skipif(
    not shutil.which("numactl")
    or subprocess.run(["numactl", "--show"], capture_output=True, check=False).returncode != 0,
    reason="no numactl that works here",
)
TELL = (
    "import json, os, subprocess; print(json.dumps([sorted(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'], "
    "subprocess.run(['numactl', '--show'], capture_output=True, text=True).stdout]))"
)


def planned(trees: Trees, machine: Machine, **demand: int) -> tuple[Topology, MachinePlacement]:
    topology = read_topology(SystemFiles(trees(machine)))
    return topology, place(topology, Demand(**demand))  # type: ignore[arg-type]


@pytest.fixture
def here() -> tuple[Topology, MachinePlacement]:
    topology = this_machine()
    return topology, place(topology, Demand(ranks=min(2, len(topology.allowed_cpus)), workers=1))


@needs_numactl
@pytest.mark.parametrize(("strict", "policy"), [(False, "preferred"), (True, "bind")])
def test_a_line_binds(here: tuple[Topology, MachinePlacement], strict: bool, policy: str) -> None:
    topology, placement = here
    for rank in placement.ranks:
        line = joined(rank_words(topology, rank, [sys.executable, "-c", TELL], strict=strict))
        done = subprocess.run(line, shell=True, capture_output=True, text=True, check=True)
        cpus, threads, shown = json.loads(done.stdout)
        assert cpus == list(rank.cpus)
        assert threads == str(len(rank.main_cores))
        assert f"policy: {policy}" in shown


@needs_numactl
def test_the_script_binds_by_rank(here: tuple[Topology, MachinePlacement], tmp_path: Path) -> None:
    topology, placement = here
    file = tmp_path / "numa.sh"
    file.write_text(script(topology, placement))
    for name in ("LOCAL_RANK", "SLURM_LOCALID"):
        for rank in placement.ranks:
            environment = {
                key: value for key, value in os.environ.items() if key not in ("LOCAL_RANK", "SLURM_LOCALID")
            }
            line = ["sh", str(file), sys.executable, "-c", TELL]
            done = subprocess.run(line, env={**environment, name: str(rank.rank)}, capture_output=True, check=True)
            assert json.loads(done.stdout)[0] == list(rank.cpus)
    done = subprocess.run(
        ["sh", str(file), "true"], env={**environment, "LOCAL_RANK": "99"}, capture_output=True, check=False
    )
    assert (done.returncode, b"LOCAL_RANK must be 0 to" in done.stderr) == (2, True)


@needs_numactl
@pytest.mark.slow
def test_torchrun_starts_the_script(here: tuple[Topology, MachinePlacement], tmp_path: Path) -> None:
    topology, placement = here
    (tmp_path / "numa.sh").write_text(script(topology, placement))
    (tmp_path / "numa.sh").chmod(0o755)
    tell = "import os; open(os.environ['LOCAL_RANK'], 'w').write(str(sorted(os.sched_getaffinity(0))))"
    words = commands(topology, placement, [sys.executable, "-c", tell]).torchrun
    line = [sys.executable, "-m", "torch.distributed.run", "--standalone", *words[1:]]
    subprocess.run(line, cwd=tmp_path, capture_output=True, check=True, timeout=120)
    for rank in placement.ranks:
        assert (tmp_path / str(rank.rank)).read_text() == str(list(rank.cpus))


def test_lines_of_a_dgx(trees: Trees) -> None:
    topology, placement = planned(trees, DGX_H100, workers=4)
    lines = commands(topology, placement, ("python", "my train.py"))
    assert joined(lines.ranks[5]) == (
        "OMP_NUM_THREADS=10 numactl --physcpubind=70-83,182-195 --preferred=1 -- python 'my train.py'"
    )
    assert joined(lines.shared) == "numactl --interleave=0-1 -- python 'my train.py'"
    assert joined(lines.torchrun) == "torchrun --nproc-per-node=8 --numa-binding=exclusive 'my train.py'"


def test_strict_lines(trees: Trees) -> None:
    topology, placement = planned(trees, DGX_H100)
    lines = commands(topology, placement, strict=True)
    assert "--membind=1" in lines.ranks[4]
    assert lines.torchrun == ("torchrun", "--nproc-per-node=8", "--no-python", "./numa.sh", "python", "train.py")


def test_where_torchrun_would_fail_the_script_is_named(trees: Trees) -> None:
    lines = commands(*planned(trees, SLURM))
    assert "./numa.sh" in lines.torchrun
    assert "rank 4 fails: node 1 has no CPU that may be used" in lines.torchrun_why


def test_other_commands_under_torchruns_own_binding(trees: Trees) -> None:
    lines = commands(*planned(trees, DGX_A100), ("bash", "run.sh"))
    assert lines.torchrun[2:] == ("--numa-binding=exclusive", "--no-python", "bash", "run.sh")


def test_a_node_without_memory_is_not_preferred(trees: Trees) -> None:
    topology, _ = planned(trees, EPYC_7251)
    bare = [replace(node, free_bytes=Bytes(0), cache_bytes=Bytes(0)) for node in topology.nodes]
    topology = replace(topology, nodes=tuple(bare))
    assert not any("preferred" in word for words in commands(topology, place(topology)).ranks for word in words)


def test_slurm_masks_have_a_bit_for_each_cpu(trees: Trees) -> None:
    topology, placement = planned(trees, DGX_A100)
    (masks,) = [word for word in commands(topology, placement).slurm if word.startswith("--cpu-bind=mask_cpu:")]
    values = [int(text, 16) for text in masks.partition(":")[2].split(",")]
    assert [{bit for bit in range(256) if value >> bit & 1} for value in values] == [
        set(rank.cpus) for rank in placement.ranks
    ]


WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=12)


@settings(deadline=None)
@given(
    st.lists(WORDS | st.sampled_from(["OMP_NUM_THREADS=1", "a=b c", "--x=$HOME", "it's"]), min_size=1),
    st.integers(20, 60),
)
def test_a_line_that_is_wrapped_is_the_same_line_to_a_shell(words: list[str], width: int) -> None:
    lines = "\n".join(wrapped(words, width))
    done = subprocess.run(["sh", "-c", f"printf '%s\\0' {lines}"], capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == words
    assert shlex.split(joined(words)) == words


@given(st.sets(st.integers(0, 300)))
def test_masks(numbers: set[int]) -> None:
    assert mask(numbers).bit_count() == len(numbers)
    assert mask(numbers) >> max(numbers, default=0) == (1 if numbers else 0)
    assert format_list(numbers) == format_list(sorted(numbers) * 2)
