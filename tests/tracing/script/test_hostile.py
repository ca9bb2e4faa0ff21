"""Programs that do what they should not: the right answer, nothing left running, nothing changed on the disk."""

import os
from pathlib import Path

import psutil
import pytest

from memplan.errors import EstimateError, ExitCode
from memplan.hardware.catalog import load_profile
from memplan.job.spec import JobSpec, ScriptTarget
from memplan.measure.compose import estimate
from memplan.measure.local import estimate_here

TRAIN = """
import torch
model = torch.nn.Linear(64, 64, device="cuda")
optimizer = torch.optim.AdamW(model.parameters())
def step():
    model(torch.randn(8, 64, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
LOOP = "while True:\n    step()\n"
REFUSED = {
    "removes": "import os\nos.remove('kept.txt')",
    "renames": "import os\nos.replace('kept.txt', 'other.txt')",
    "shortens": "import os\nos.truncate('kept.txt', 0)",
    "links": "import os\nos.symlink('kept.txt', 'link.txt')",
    "changes modes": "import os\nos.chmod('kept.txt', 0)",
    "renames over": "import os\nopen('new.txt', 'w').close()\nos.replace('kept.txt', 'new.txt')",
    "removes what it changed": "import os\nopen('kept.txt', 'a').close()\nos.remove('kept.txt')",
    "keeps a database": "import sqlite3\nsqlite3.connect('data.db').execute('create table t (x)')",
    "removes a tree": "import shutil\nshutil.rmtree('.')",
    "starts a process": "import subprocess\nsubprocess.Popen(['sleep', '1000'])",
    "starts a shell": "import posix\nposix.system('touch new.txt')",
    "starts a shell that fails": "import os\nos.system('touch new.txt') and os.remove('kept.txt')",
    "forks": "import os\nos.fork() or os._exit(0)",
    "forks workers": "import multiprocessing as m\nm.get_context('fork').Process(target=print, args=m.Pipe()).start()",
    "spawns workers": "import multiprocessing as m\nm.get_context('spawn').Process(target=max, args=m.Pipe()).start()",
    "executes": "import os\nos.execv('/bin/true', ['true'])",
    "kills its parent": "import os\nos.kill(os.getppid(), 9)",
    "asks the net": "import socket\nsocket.getaddrinfo('example.org', 80)",
    "listens": "import socket\nwith socket.socket() as one:\n    one.bind(('', 29500))",
    "listens at a file": "import socket\nwith socket.socket(socket.AF_UNIX) as one:\n    one.bind('new.txt')",
    "connects": "import socket\nsocket.create_connection(('127.0.0.1', 9))",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept.txt").write_text("kept")
    return tmp_path


def spec_of(text: str) -> JobSpec:
    Path("train.py").write_text(text)
    return JobSpec(target=ScriptTarget(path=Path("train.py")))


def assert_unchanged(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} <= {"kept.txt", "train.py", "__pycache__"}
    assert (folder / "kept.txt").read_text() == "kept"
    assert (folder / "kept.txt").stat().st_mode & 0o200


@pytest.fixture
def already_running() -> set[psutil.Process]:
    """Processes of earlier tests: a pool of workers waits minutes for its next task."""
    return set(psutil.Process().children(recursive=True))


def left_running(before: set[psutil.Process]) -> list[psutil.Process]:
    """Processes below this one that were not there before, but the server that waits for the next job."""
    new = set(psutil.Process().children(recursive=True)) - before
    return [each for each in new if each.ppid() != os.getpid() or "multiprocessing" not in " ".join(each.cmdline())]


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_what_would_change_the_machine_fails_as_without_permission(text: str, folder: Path) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with pytest.raises(EstimateError, match="PermissionError") as caught:
        estimate_here(spec_of(text + TRAIN + LOOP), [load_profile("h100-80g")], advice=False)
    assert caught.value.exit_code == ExitCode.UNKNOWN
    assert caught.value.where == f"train.py:{text.count(chr(10)) + 1}"
    assert_unchanged(folder)
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


@pytest.mark.parametrize(
    "text",
    [
        "open('new.txt', 'w').close()",
        "import pathlib\npathlib.Path('a/b').mkdir(parents=True)\npathlib.Path('a/b/new.txt').write_text('x')",
        "import numpy\nnumpy.save('new.npy', numpy.zeros(3))",
        "import numpy\nnumpy.memmap('new.bin', mode='w+', shape=(8,))",
        "import os\nos.chdir('/')\nopen('kept.txt', 'a').close()",
        "import tempfile\ntempfile.TemporaryDirectory().cleanup()",
        "import os\nos.close(os.open('new.txt', os.O_WRONLY | os.O_CREAT))",
    ],
)
def test_what_is_written_goes_to_a_scratch_folder(text: str, folder: Path) -> None:
    here = Path.cwd()
    try:
        [answer] = estimate_here(spec_of(text + TRAIN + LOOP), [load_profile("h100-80g")], advice=False)
    finally:
        os.chdir(here)
    assert answer.repeats
    assert_unchanged(folder)
    assert not Path("/kept.txt").exists()


def test_a_program_that_catches_everything_is_answered_by_its_first_steps() -> None:
    text = TRAIN + "for _ in range(50):\n    try:\n        step()\n    except:\n        pass\n"
    [answer] = estimate_here(spec_of(text), [load_profile("h100-80g")], advice=False)
    assert answer.repeats
    assert answer.steps_traced <= 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("while True:\n    pass\n", "within 8 seconds"),
        (TRAIN + "import os\nstep()\nos._exit(0)\n", "exit code 0"),
        (TRAIN + "import os\nos.abort()\n", "SIGABRT"),
        ("import sys\nsys.exit('no data')\n", "no data"),
        ("input()\n", "EOFError"),
        ("import sys\nassert not sys.stdin.read()\nraise ValueError('empty')\n", "empty"),
    ],
    ids=["endless", "exits at once", "aborts", "exits", "asks", "reads"],
)
def test_how_a_program_ends_is_said(text: str, said: str, folder: Path, already_running: set[psutil.Process]) -> None:
    with pytest.raises(EstimateError, match=said) as caught:
        estimate(spec_of(text), [load_profile("h100-80g")], timeout=8 if "within" in said else 120)
    assert caught.value.exit_code == ExitCode.UNKNOWN
    assert_unchanged(folder)
    assert not left_running(already_running)


@pytest.mark.slow
@pytest.mark.parametrize("daemon", [True, False])
def test_threads_do_not_outlive_the_answer(daemon: bool, folder: Path, already_running: set[psutil.Process]) -> None:
    busy = f"import threading, time\nthreading.Thread(target=lambda: time.sleep(1000), daemon={daemon}).start()\n"
    [result] = estimate(spec_of(busy + TRAIN + LOOP), [load_profile("h100-80g")], timeout=120)
    assert result.estimate.repeats
    assert_unchanged(folder)
    assert not left_running(already_running)
