"""Bad input through the real command: exit code, message on stderr, nothing on stdout."""

import io
import json
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Protocol

import pytest

from memplan.cli.app import main
from memplan.job import isolate
from tests.support.command import Command

ROOT = Path(__file__).parents[1]
GOOD = """import torch
from torch import nn
def model():
    return nn.Linear(3, 2)
def batch(batch_size):
    return torch.randn(batch_size, 3)
def loss(output, batch):
    return output.mean()
"""
LARGEST = 2**31 - 1
"""Largest batch whose size fits into 32 bits."""
COMMANDS = ("estimate", "snapshot", "simulate", "validate", "gpus", "presets", "explain")
USAGE, UNKNOWN = 2, 3
"""Exit codes as docs/errors-and-exit-codes.md lists them."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(GOOD)
    return tmp_path


class Complaint(Protocol):
    """What a command that must fail says."""

    def __call__(self, code: int, *words: str, command: str = "estimate") -> str: ...


@pytest.fixture
def complaint(folder: Path, memplan: Command) -> Complaint:
    def run(code: int, *words: str, command: str = "estimate") -> str:
        before = set(folder.iterdir())
        done = memplan(command, *words, folder=folder)
        assert {path for path in folder.iterdir() if path.name != "__pycache__"} <= before
        assert done.returncode == code, done.stderr
        assert done.stdout == ""
        assert "Traceback" not in done.stderr
        assert done.stderr.lower().count("error: ") >= 1
        return done.stderr

    return run


USAGE_ERRORS = {
    "missing file": (("nowhere.py", "--gpu", "t4"), ("nowhere.py",)),
    "folder": ((".", "--gpu", "t4"), ("model.py:factory",)),
    "missing factory": (("model.py:nothing", "--gpu", "t4"), ("model.py", "nothing")),
    "missing module": (("no_such_package.net:model", "--gpu", "t4"), ("there is no module 'no_such_package'",)),
    "unknown GPU": (("model.py", "--gpu", "h100-80h"), ("unknown GPU 'h100-80h'", "h100-80g")),
    "batch of zero": (("model.py", "--gpu", "t4", "--batch-size", "0"), ("--batch-size", "between 1 and", "not 0")),
    "batch beyond 32 bits": (("model.py", "--gpu", "t4", "--batch-size", str(2**40)), ("--batch-size", str(2**40))),
    "batch of NaN": (("model.py", "--gpu", "t4", "--batch-size", "nan"), ("--batch-size", "valid integer")),
    "norm of NaN": (("model.py", "--gpu", "t4", "--clip-grad-norm", "nan"), ("--clip-grad-norm", "nan")),
    "timeout of NaN": (("model.py", "--gpu", "t4", "--timeout", "nan"), ("--timeout", "nan")),
    "unknown precision": (("model.py", "--gpu", "t4", "--precision", "fp12"), ("--precision", "bf16-mixed", "fp12")),
    "unknown optimizer": (("model.py", "--gpu", "t4", "--optimizer", "adamx"), ("--optimizer", "adamw", "adamx")),
    "input of NaN": (("model.py", "--gpu", "t4", "--input", "x=float32[nan]"), ("x=float32[nan]",)),
    "input of unknown dtype": (("model.py", "--gpu", "t4", "--input", "x=float33[B]"), ("float33",)),
    "missing checkpoint plan": (
        ("model.py", "--gpu", "t4", "--checkpoint", "plan.json"),
        ("plan.json",),
    ),
    "length that nothing takes": (("model.py", "--gpu", "t4", "--seq-len", "9"), ("batch(batch_size) takes none",)),
}


@pytest.mark.parametrize(("words", "said"), USAGE_ERRORS.values(), ids=list(USAGE_ERRORS))
def test_wrong_options_end_with_2(complaint: Complaint, words: tuple[str, ...], said: tuple[str, ...]) -> None:
    message = complaint(USAGE, *words)
    assert [part for part in said if part not in message] == []


OTHER_USAGE_ERRORS = {
    "no snapshot": (("snapshot", "none.pickle"), ("there is no file 'none.pickle'", "_dump_snapshot")),
    "snapshot: folder": (("snapshot", "."), ("cannot read the snapshot: Is a directory",)),
    "snapshot: text": (("snapshot", "model.py"), ("not a CUDA memory snapshot", "at model.py", "_dump_snapshot")),
    "snapshot: empty": (("snapshot", "empty.pickle"), ("not a CUDA memory snapshot", "at empty.pickle")),
    "snapshot: cut": (("snapshot", "cut.pickle"), ("not a CUDA memory snapshot", "at cut.pickle")),
    "snapshot: options": (
        ("snapshot", "cut.pickle", "--top", "0", "--recorded-conf", "expandable_segments:maybe", "-f", "xml"),
        ("--top must be at least 1", "True or False, not 'maybe'", "not 'xml'"),
    ),
    "snapshot: two reports": (("snapshot", "cut.pickle", "-f", "json", "-f", "perfetto"), ("only one report",)),
    "snapshot: no folder": (("snapshot", "cut.pickle", "-f", "json=no/x.json"), ("'no/x.json'", "that exists")),
    "simulate: two GPUs": (("simulate", "model.py", "--gpu", "t4", "--gpu", "l4"), ("one GPU at a time",)),
    "simulate: cpu": (("simulate", "model.py", "--gpu", "cpu"), ("--gpu cpu has no caching allocator",)),
    "simulate: no snapshot": (("simulate", "none.pickle"), ("there is no file 'none.pickle'",)),
    "simulate: job of a snapshot": (("simulate", "cut.pickle", "--batch-size", "4"), ("--batch-size would change",)),
    "simulate: lengths": (("simulate", "model.py", "--gpu", "t4", "--seq-len-dist", "banana"), ("banana", "uniform:")),
    "simulate: backwards": (("simulate", "model.py", "--gpu", "t4", "--seq-len-dist", "uniform:9-1"), ("backwards",)),
    "simulate: options": (
        ("simulate", "model.py", "--gpu", "t4", "--steps", "0", "--compact-at", "nan", "--buckets", "x"),
        ("--steps must be between 1", "--compact-at must be a share", "'x' is not a size"),
    ),
    "validate: no target": (("validate",), ("a target is missing", "--calibrate")),
    "validate: device": (("validate", "model.py", "--device", "t4"), ("auto, cpu, cuda or cuda:N, not 't4'",)),
    "validate: options": (
        ("validate", "model.py", "--steps", "0", "--seconds", "nan", "--keep-snapshot", "no/x.pickle"),
        ("--steps must be between 1", "--seconds must be", "'no/x.pickle'"),
    ),
    "validate: snapshot of a CPU": (
        ("validate", "model.py", "--device", "cpu", "--keep-snapshot", "x.pickle"),
        ("only a CUDA device writes memory snapshots", "--keep-snapshot"),
    ),
    "calibrate: idle options": (
        ("validate", "--calibrate", "--json", "--batch-size", "4"),
        ("--batch-size, --json would change nothing",),
    ),
    "calibrate: device": (("validate", "--calibrate", "--device", "tpu"), ("not 'tpu'",)),
    "calibrate: CPU": (("validate", "--calibrate", "--device", "cpu"), ("only a CUDA device is calibrated",)),
    "unknown finding": (("explain", "MP999"), ("there is no finding 'MP999'", "memplan explain lists them")),
}


@pytest.mark.parametrize(("words", "said"), OTHER_USAGE_ERRORS.values(), ids=list(OTHER_USAGE_ERRORS))
def test_the_other_commands_complain_alike(
    folder: Path, complaint: Complaint, words: tuple[str, ...], said: tuple[str, ...]
) -> None:
    (folder / "empty.pickle").touch()
    (folder / "cut.pickle").write_bytes(pickle.dumps({"segments": [], "device_traces": []})[:-5])
    command, *rest = words
    message = complaint(USAGE, *rest, command=command)
    assert [part for part in said if part not in message] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_any_encoding_will_do(tmp_path: Path, memplan: Command, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii", write_through=True))
    done = memplan(command, "--help", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert command.encode() in written.getvalue()


def test_the_encoding_is_that_of_the_process() -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    line = [sys.executable, "-m", "memplan", "estimate", "--help"]
    done = subprocess.run(line, capture_output=True, env=environment, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"estimate" in done.stdout


@pytest.mark.parametrize("variables", [{"COLUMNS": "0"}, {"TERM": "dumb"}], ids=str)
@pytest.mark.parametrize(("words", "said"), [(("estimate", "--help"), "estimate"), (("gpus",), "h100-80g")], ids=str)
def test_any_terminal_will_do(
    tmp_path: Path, memplan: Command, words: tuple[str, ...], said: str, variables: dict[str, str]
) -> None:
    done = memplan(*words, folder=tmp_path, variables=variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert said in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("words", [("gpus", "--json"), ("explain",)], ids=" ".join)
def test_a_full_disk_is_no_defect(words: tuple[str, ...]) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    line = [sys.executable, "-m", "memplan", *words]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            line, stdout=full, stderr=subprocess.PIPE, env=environment | {"PYTHONPATH": str(ROOT)}, check=False
        )
    assert done.returncode == USAGE
    assert done.stderr == b"error: cannot write the output: No space left on device\n"


CODE_ERRORS = {
    "syntax error": ("def model(:\n", ("model.py is not valid Python", "at model.py:1:11")),
    "factory raises": (
        GOOD.replace("return nn.Linear(3, 2)", "raise ValueError('no weights')"),
        ("model() raised ValueError: no weights", "at model.py:4"),
    ),
    "batch raises": (
        GOOD.replace("return torch.randn(batch_size, 3)", "return torch.randn(batch_size, 3)[99]"),
        ("batch() raised IndexError", "at model.py:6"),
    ),
    "wrong shapes": (
        GOOD.replace("torch.randn(batch_size, 3)", "torch.randn(batch_size, 4)"),
        ("step 1 raised RuntimeError", "[1, 4] X [3, 2]"),
    ),
    "wrong shapes in a loss": (
        GOOD.replace("output.mean()", "(output - torch.zeros(7)).mean()"),
        ("loss() raised RuntimeError", "7", "at model.py:8"),
    ),
    "distributed": (
        GOOD.replace("return nn", "torch.distributed.init_process_group('nccl', store=None); return nn"),
        ("model() raised", "at model.py:4"),
    ),
}


@pytest.mark.parametrize(("text", "said"), CODE_ERRORS.values(), ids=list(CODE_ERRORS))
def test_failing_code_ends_with_3(folder: Path, complaint: Complaint, text: str, said: tuple[str, ...]) -> None:
    (folder / "model.py").write_text(text)
    message = complaint(UNKNOWN, "model.py", "--gpu", "t4")
    assert [part for part in said if part not in message] == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [("def model():\n\tx = (1,\n", "    x = (1,\n        ^\n  at model.py:2:6\n"),
     ("return 3\n", "    return 3\n    ^\n  at model.py:1:1\n")],
)  # fmt: skip
def test_a_syntax_error_is_shown_before_a_process_is_started(
    text: str, shown: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(isolate, "_start", lambda: pytest.fail("a process was started"))
    Path("model.py").write_text(text)
    assert main(["estimate", "model.py", "--gpu", "t4"]) == UNKNOWN
    assert capsys.readouterr().err.endswith(shown)


@pytest.mark.slow
def test_a_factory_that_hangs_is_ended_where_it_hangs(folder: Path, complaint: Complaint) -> None:
    (folder / "model.py").write_text(GOOD.replace("return nn.Linear(3, 2)", "while True:\n        pass"))
    started = time.monotonic()
    message = complaint(UNKNOWN, "model.py", "--gpu", "t4", "--timeout", "5")
    assert 5 <= time.monotonic() - started < 15
    assert "did not come to an end within 5 seconds" in message
    assert "at model.py:4" in message or "at model.py:5" in message
    assert "--timeout" in message


@pytest.mark.slow
def test_a_gigantic_batch_is_answered_by_arithmetic(folder: Path, memplan: Command) -> None:
    started = time.monotonic()
    done = memplan("estimate", "model.py", "--gpu", "t4", "--batch-size", str(LARGEST), "--json", folder=folder)
    assert time.monotonic() - started < 30
    assert done.returncode == 0, done.stderr
    estimate = json.loads(done.stdout)
    assert estimate["verdict"] == "oom"
    # Three fp32 numbers per sample go in and two come out.
    assert estimate["breakdown"]["input"] == LARGEST * 3 * 4
    assert estimate["peak"]["allocated_bytes"] > LARGEST * 5 * 4


def test_code_that_calls_cuda_when_imported_runs(folder: Path, memplan: Command) -> None:
    text = "import torch\nprint(torch.cuda.get_device_name())\nweight = torch.ones(5, device='cuda').cuda()\n" + GOOD
    (folder / "model.py").write_text(text)
    done = memplan("estimate", "model.py", "--gpu", "t4", "--quiet", folder=folder)
    assert done.returncode == 0, done.stderr
    assert "FITS" in done.stdout


def test_code_that_insists_on_cuda_fails_on_a_cpu_with_a_hint(folder: Path, complaint: Complaint) -> None:
    (folder / "model.py").write_text(GOOD.replace("nn.Linear(3, 2)", "nn.Linear(3, 2).cuda()"))
    message = complaint(UNKNOWN, "model.py", "--gpu", "cpu")
    assert "at model.py:4" in message
    assert "torch.cuda.is_available()" in message


def test_code_that_finds_no_driver_is_not_told_to_ask_what_is_answered_with_yes(
    folder: Path, complaint: Complaint
) -> None:
    (folder / "model.py").write_text(GOOD.replace("return nn", "raise RuntimeError('no NVIDIA driver'); return nn"))
    message = complaint(UNKNOWN, "model.py", "--gpu", "t4")
    assert "no trace can follow" in message
    assert "is_available" not in message


def test_what_an_exception_says_commands_no_terminal(folder: Path, complaint: Complaint) -> None:
    (folder / "model.py").write_text(GOOD.replace("return nn", r"raise ValueError('\x1b[2J\x07\r\x9b1m'); return nn"))
    message = complaint(UNKNOWN, "model.py", "--gpu", "t4")
    assert "model() raised ValueError" in message
    assert not set(message) & set("\x1b\x07\r\x9b")
