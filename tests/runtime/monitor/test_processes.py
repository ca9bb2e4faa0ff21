"""The kernel's counts, where its files say so."""

import subprocess
import sys
from pathlib import Path

import pytest

from memplan.runtime.monitor import processes
from memplan.units import MIB


@pytest.mark.parametrize(
    ("group", "file", "text"),
    [
        ("0::/job.slice\n", "job.slice/memory.events", "oom 9\noom_kill 3\n"),
        ("0::/elsewhere\n", "memory.events", "oom_kill 3\noom_group_kill 0\n"),
        ("4:memory:/job\n0::/\n", "memory/job/memory.oom_control", "under_oom 0\noom_kill 3\n"),
        ("7:cpu:/\n", None, ""),
    ],
    ids=["v2", "v2 in a container", "v1", "no group"],
)
def test_where_kills_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str, file: str | None, text: str
) -> None:
    (tmp_path / "own").write_text(group)
    (tmp_path / "vmstat").write_text("pgfault 1\noom_kill 8\n")
    if file:
        path = tmp_path / "groups" / file
        path.parent.mkdir(parents=True)
        path.write_text(text)
    monkeypatch.setattr(processes, "_OWN_GROUP", tmp_path / "own")
    monkeypatch.setattr(processes, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(processes, "_VMSTAT", tmp_path / "vmstat")
    assert processes.oom_kills() == (3 if file else 8)


def test_nobody_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_OWN_GROUP", "_GROUPS", "_VMSTAT"):
        monkeypatch.setattr(processes, name, tmp_path / "none")
    assert processes.oom_kills() == 0


def test_a_tree_has_what_was_started() -> None:
    big = f"x = bytearray({64 * MIB}); print(flush=True); input()"
    inner = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {big!r}])"
    outer = subprocess.Popen([sys.executable, "-c", inner], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert outer.stdout is not None
    outer.stdout.readline()
    pids, resident = processes.tree(outer.pid)
    assert len(pids) == 2
    assert resident > 64 * MIB
    assert processes.host_of(resident).resident == resident
    outer.communicate("\n")
    assert processes.tree(outer.pid) == (frozenset(), 0)
