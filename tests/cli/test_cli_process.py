"""The command line as a process: exit codes as a shell sees them, pipes, and how light the light commands are."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from memplan.measure.records import Estimate
from tests.cli.conftest import Library
from tests.report.example_estimates import FITS, OOM, UNKNOWN
from tests.support.command import Command, Done

ROOT = Path(__file__).parents[2]
# Runs the command line with the library call replaced by one expression.
INJECT = """
import sys
from tests.report.example_estimates import *
from memplan.measure import compose
from memplan.measure.records import RecordedEstimate
def recorded(estimate):
    return (RecordedEstimate(estimate=estimate, history=None),)
def answer(*_, **__):
    {body}
compose.estimate = answer
from memplan.cli.app import main
sys.exit(main())
"""
TARGET = ("estimate", "preset:gpt2", "--gpu", "h100-80g")
HEAVY = {
    "diffusers", "jinja2", "lightning", "networkx", "numba", "numpy", "ortools", "pandas", "pulp", "scipy", "torch",
    "transformers",
}  # fmt: skip
"""What takes long to import, and no light command needs; benchmarks/light_commands.py tells their CPU time."""


def python(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
    environment.pop("MEMPLAN_DEBUG", None)
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env=environment, timeout=60, check=False, **options
    )


@pytest.mark.parametrize(
    ("body", "words", "code"),
    [
        ("return recorded(OOM)", ("--fail-on", "oom"), 1),
        ("raise KeyboardInterrupt", (), 130),
    ],
)
def test_exit_codes_as_a_shell_sees_them(body: str, words: tuple[str, ...], code: int) -> None:
    done = python("-c", INJECT.format(body=body), *TARGET, *words)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("answer", "words", "code"),
    [
        (FITS, (), 0),
        (OOM, (), 0),
        (OOM, ("--fail-on", "oom"), 1),
        (UNKNOWN, (), 3),
        (RuntimeError("crash"), ("--fail-on", "oom"), 2),
        (KeyboardInterrupt(), (), 130),
        (SystemExit(1), (), 2),
    ],
)
def test_exit_codes(
    answer: Estimate | BaseException,
    words: tuple[str, ...],
    code: int,
    library: Library,
    memplan: Command,
    tmp_path: Path,
) -> None:
    if isinstance(answer, BaseException):
        library.failure = answer
    else:
        library.answers = (answer,)
    done = memplan(*TARGET, *words, folder=tmp_path)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


def told_as_wrong(done: Done | subprocess.CompletedProcess[str]) -> bool:
    return done.returncode == 2 and done.stdout == "" and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("estimate",),
        ("estimate", "no-such-file.py", "--gpu", "h100-80g"),
        ("no-such-command",),
        ("--no-such-option",),
    ],
)
def test_wrong_usage_is_2(words: tuple[str, ...], memplan: Command, tmp_path: Path) -> None:
    assert told_as_wrong(memplan(*words, folder=tmp_path))


def test_version_help_and_wrong_usage_as_a_shell_sees_them(memplan: Command, tmp_path: Path) -> None:
    assert python("-m", "memplan", "--version").stdout.startswith("memplan ")
    assert told_as_wrong(python("-m", "memplan", "no-such-command"))
    assert memplan("--help", folder=tmp_path).returncode == 0


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("gpus",),
        *(pytest.param(each, marks=pytest.mark.slow) for each in (("estimate", "--help"), ("explain", "MP001"))),
    ],
)
def test_a_reader_that_goes_away_is_no_failure(words: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)  # Gone before the first word.
    with os.fdopen(writing, "w") as nobody:
        done = subprocess.run(
            [sys.executable, "-m", "memplan", *words],
            cwd=ROOT, stdout=nobody, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 0
    assert done.stderr == ""


def test_a_reader_that_goes_away_does_not_change_the_verdict() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as nobody:
        done = subprocess.run(
            [sys.executable, "-c", INJECT.format(body="return recorded(OOM)"), *TARGET, "--fail-on", "oom"],
            cwd=ROOT, stdout=nobody, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == ""


@pytest.mark.parametrize(
    "words",
    [
        ["gpus"],
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in (["--help"], ["estimate", "--help"], ["presets"], ["explain", "MP001"])
        ),
    ],
)
def test_light_commands_import_nothing_heavy(words: list[str]) -> None:
    code = (
        "import sys\nfrom memplan.cli.app import main\n"
        f"assert main({words}) == 0\n"
        f"print(sorted({HEAVY} & set(sys.modules)), file=sys.stderr)"
    )
    done = python("-c", code)
    assert done.stderr.splitlines()[-1] == "[]"
