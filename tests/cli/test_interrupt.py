"""Ctrl-C at any moment: exit 130, one word, and nothing left behind."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from memplan import __main__ as entry

ROOT = Path(__file__).parents[2]
TOLD = "error: interrupted\n"
# What the installed script does. Before "up" Python itself starts, and imports a module that needs its library alone.
SCRIPT = "import sys, os; from memplan.__main__ import run; os.write(1, b'up'); sys.exit(run())"
JOB = """
from torch import nn
import torch
def model():
    return nn.Sequential(*[nn.Linear(64, 64) for _ in range(8)])
def batch(batch_size):
    return torch.zeros(batch_size, 64)
def loss(output, batch):
    return output.sum()
"""


def interrupted(script: str, *words: str, after: float, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run it, and send what a terminal sends so many seconds after Python is up."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.read(2) == "up"
    time.sleep(after)
    os.killpg(process.pid, signal.SIGINT)
    out, told = process.communicate(timeout=60)
    return subprocess.CompletedProcess(process.args, process.returncode, out, told)


def patched(body: str) -> str:
    """The script, with the command line replaced."""
    replaced = textwrap.indent(textwrap.dedent(body), "    ")
    return (
        "import sys, os, time\nfrom memplan import __main__ as entry\nfrom memplan.cli import app\n"
        f"def main():\n{replaced}\napp.main = main\nentry._GRACE = 0.5\nos.write(1, b'up')\nsys.exit(entry.run())"
    )


def test_what_swallows_an_interrupt_is_ended(tmp_path: Path) -> None:
    body = """
    end = time.monotonic() + 50
    while time.monotonic() < end:
        try:
            time.sleep(0.1)
        except BaseException:
            pass
    """
    began = time.monotonic()
    done = interrupted(patched(body), after=0.5, folder=tmp_path)
    assert (done.returncode, done.stderr) == (130, TOLD)
    assert time.monotonic() - began < 30


def _is_gone(process: Path) -> bool:
    """Killed; a kill takes its moment, and nobody may have fetched its exit code yet."""
    try:
        return "\nState:\tZ" in (process / "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_children_that_are_left_end_too(tmp_path: Path) -> None:
    body = """
    import subprocess
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    os.write(1, f" {child.pid} ".encode())
    while True:
        try:
            time.sleep(1)
        except KeyboardInterrupt:
            pass
    """
    done = interrupted(patched(body), after=1.0, folder=tmp_path)
    assert done.returncode == 130
    child = Path("/proc") / done.stdout.strip()
    assert any(_is_gone(child) or time.sleep(0.05) for _ in range(100))


def test_while_the_interpreter_ends_it_says_nothing(tmp_path: Path) -> None:
    body = """
    import atexit
    atexit.register(time.sleep, 30)
    return 0
    """
    done = interrupted(patched(body), after=1.0, folder=tmp_path)
    assert (done.returncode, done.stderr) == (130, "")


def test_a_signal_that_is_not_for_us_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        monkeypatch.setattr("memplan.cli.app.main", lambda: 7)
        assert entry.run() == 7
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0, 1.5])
def test_from_the_first_moment_on(after: float, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(JOB)
    done = interrupted(SCRIPT, "estimate", "model.py", "--gpu", "l4", after=after, folder=tmp_path)
    assert done.returncode in ({130} if after < 1 else {0, 130}), done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 0 or done.stderr == TOLD


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.8, 1.1, 1.2, 1.3, 1.4, 1.5, 2.0, 4.0])
def test_while_workers_start(after: float, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(JOB)
    done = interrupted(SCRIPT, "recommend", "model.py", "--gpu", "l4", after=after, folder=tmp_path)
    assert done.returncode == 130, done.stderr
    assert done.stderr.endswith(TOLD)
