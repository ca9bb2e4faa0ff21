"""The gate as a user runs it: real jobs, real processes."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.gate.projects import COMMAND, environment, memplan, write_project
from tests.support.light import FORBID

pytestmark = pytest.mark.slow

INTERRUPTIBLE = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"


def test_from_the_first_baseline_to_a_regression(tmp_path: Path) -> None:
    write_project(tmp_path)
    first = memplan(tmp_path, "gate")
    assert first.returncode == 2
    assert "--update-baseline" in first.stderr

    made = memplan(tmp_path, "gate", "--update-baseline")
    assert made.returncode == 0, made.stdout + made.stderr
    baseline = (tmp_path / "baseline.json").read_bytes()
    # Nothing has changed: no process, no torch, and the same baseline.
    again = memplan(tmp_path, "gate", "--update-baseline", prefix=FORBID)
    assert again.returncode == 0, again.stderr
    assert "1 of 1 unchanged" in again.stdout
    assert (tmp_path / "baseline.json").read_bytes() == baseline
    assert str(tmp_path) not in baseline.decode(), "the same on every machine"

    write_project(tmp_path, blocks=4)
    grown = memplan(tmp_path, "gate", "-f", "text", "-f", "json=gate.json")
    assert grown.returncode == 1, grown.stderr
    assert "MP006" in grown.stdout
    assert "unchanged" not in grown.stdout
    assert "model.py:13" in grown.stdout, "the line that owns most of what grew"
    (row,) = json.loads((tmp_path / "gate.json").read_text())["rows"]
    before, after = (row[which]["peak"]["device_bytes"] for which in ("baseline", "estimate"))
    assert row["grown_bytes"] == after - before > 0
    assert row["findings"][0]["place"] == {"file": "model.py", "line": 13}
    assert row["growth"][0]["after_bytes"] > row["growth"][0]["before_bytes"]
    assert memplan(tmp_path, "gate", "--exit-zero").returncode == 0

    accepted = memplan(tmp_path, "gate", "--update-baseline")
    assert accepted.returncode == 0
    assert memplan(tmp_path, "gate").returncode == 0
    write_project(tmp_path, blocks=2)
    back = memplan(tmp_path, "gate", prefix=FORBID)
    assert back.returncode == 0, "the first state is still in the cache"
    assert "1 of 1 unchanged" in back.stdout

    shown = memplan(tmp_path, "report", "gate.json", "-f", "json=again.json", prefix=FORBID)
    assert shown.returncode == 0, shown.stderr
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "gate.json").read_bytes()
    compared = memplan(tmp_path, "diff", "gate.json", "baseline.json", prefix=FORBID)
    assert compared.stdout.endswith("nothing changed\n"), compared.stdout


HANGING = """
[[job]]
name = "hangs"
target = "hangs.py"
timeout = "3s"

[[job]]
name = "raises"
target = "raises.py"
"""


def test_jobs_that_hang_or_raise_are_rows(tmp_path: Path) -> None:
    write_project(tmp_path, project='gpus = ["t4"]\n[[job]]\nname = "good"\ntarget = "model.py"\n' + HANGING)
    (tmp_path / "hangs.py").write_text("while True:\n    pass\n")
    (tmp_path / "raises.py").write_text("def model():\n    raise ValueError('no width')\ndef batch(size): ...\n")
    done = memplan(tmp_path, "gate", "--jobs", "2", "-f", "text", "-f", "json=gate.json")
    assert done.returncode == 3, done.stderr
    outcomes = {row["job"]: row["outcome"] for row in json.loads((tmp_path / "gate.json").read_text())["rows"]}
    assert outcomes == {"good": "passed", "hangs": "unknown", "raises": "unknown"}
    assert "within 3 seconds" in done.stdout
    assert "ValueError: no width" in done.stdout
    assert "at raises.py:2" in done.stdout
    assert memplan(tmp_path, "gate", "raises", "--fail-on", "unknown").returncode == 1
    assert memplan(tmp_path, "gate", "good").returncode == 0


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_an_interruption_ends_every_process_and_leaves_no_file(tmp_path: Path) -> None:
    mark = f"mark-{os.getpid()}-{time.monotonic_ns()}"
    jobs = "".join(f'\n[[job]]\nname = "{name}"\ntarget = "hangs.py"\n' for name in "abc")
    write_project(tmp_path, project='gpus = ["t4"]\n' + jobs)
    (tmp_path / "hangs.py").write_text(
        "import pathlib, subprocess, sys\npathlib.Path('started').touch()\n"
        f"subprocess.run([sys.executable, '-c', 'import time; time.sleep(99)', '{mark}'])\n"
    )
    (tmp_path / "gate.json").write_text("before")
    process = subprocess.Popen(
        # What a shell starts in the background ignores SIGINT, and so would this process, as their descendant.
        [sys.executable, "-c", INTERRUPTIBLE + COMMAND, "gate", "--jobs", "2", "-f", "json=gate.json"],
        cwd=tmp_path, env=environment(tmp_path), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until = time.monotonic() + 60
    while not (tmp_path / "started").exists() and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130, errors
    assert (tmp_path / "gate.json").read_text() == "before"
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {
        "gate.json",
        "hangs.py",
        "memplan.toml",
        "model.py",
        "started",
    }
    time.sleep(0.2)
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if mark in _words(path)]


def _words(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    (folder / "training").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    for blocks in (2, 3):
        write_project(folder / "training", blocks=blocks)
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", f"{blocks} blocks")
    return folder


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    done = subprocess.run(["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def test_two_revisions_are_compared_and_the_checkout_is_as_it_was(repository: Path) -> None:
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.write_text("#!/bin/sh\ntouch /dev/null/hook-ran\nexit 1\n")
    hook.chmod(0o755)
    here = repository / "training"
    (here / "untracked.txt").write_text("mine")
    (here / "model.py").write_text("changed, and no Python any more (\n")
    before = git(repository, "status", "--porcelain")
    done = memplan(here, "diff", "HEAD~1", "HEAD", "-f", "text", "-f", "markdown=../../diff.md")
    assert done.returncode == 0, done.stderr
    assert re.search(r"\+\d+\.\d\d MiB .*activations +2", done.stdout), done.stdout
    assert "1 of 1 grew, small on t4" in done.stdout
    assert "| small | t4 |" in (repository.parent / "diff.md").read_text()
    assert git(repository, "status", "--porcelain") == before
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_what_is_no_revision_is_told(repository: Path) -> None:
    done = memplan(repository / "training", "diff", "HEAD~1", "--output=x")
    assert done.returncode == 2
    done = memplan(repository / "training", "diff", "nonsense", "HEAD")
    assert done.returncode == 2
    assert "no revision and no file 'nonsense'" in done.stderr
    done = memplan(repository, "diff", "HEAD~1", "HEAD")
    assert done.returncode == 2
    assert "memplan.toml" in done.stderr
    assert len(git(repository, "worktree", "list").splitlines()) == 1
