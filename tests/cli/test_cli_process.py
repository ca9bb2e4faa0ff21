"""The command line as a process: exit codes as a shell sees them, pipes, and how light the light commands are."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Runs the command line with the library call replaced by one expression.
INJECT = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from tests.report.example_estimates import *
from memplan.estimate import compose
def answer(*_, **__):
    {body}
compose.estimate = answer
from memplan.cli.app import main
sys.exit(main())
"""
MAX_LIGHT_SECONDS = 0.4
"""CPU time of a light command (issue: speed); doubled in the test, which shares the machine with others."""


def memplan(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
    environment.pop("MEMPLAN_DEBUG", None)
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env=environment, timeout=60, check=False, **options
    )


def injected(body: str, *words: str) -> subprocess.CompletedProcess[str]:
    target = ["estimate", "preset:gpt2", "--gpu", "h100-80g", *words]
    return memplan("-c", INJECT.format(body=body), str(ROOT / "tests" / "report"), *target)


@pytest.mark.parametrize(
    ("body", "words", "code"),
    [
        ("return (FITS,)", (), 0),
        ("return (OOM,)", (), 0),
        ("return (OOM,)", ("--fail-on", "oom"), 1),
        ("return (UNKNOWN,)", (), 3),
        ("raise RuntimeError('crash')", ("--fail-on", "oom"), 2),
        ("raise KeyboardInterrupt", (), 130),
        ("sys.exit(1)", (), 2),
    ],
)
def test_exit_codes(body: str, words: tuple[str, ...], code: int) -> None:
    done = injected(body, *words)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("estimate",),
        ("estimate", "no-such-file.py", "--gpu", "h100-80g"),
        ("estimate", "preset:gpt2"),
        ("no-such-command",),
        ("--no-such-option",),
    ],
)
def test_wrong_usage_is_2(words: tuple[str, ...]) -> None:
    done = memplan("-m", "memplan", *words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_version_and_help_are_0() -> None:
    assert memplan("-m", "memplan", "--version").stdout.startswith("memplan ")
    assert memplan("-m", "memplan", "--help").returncode == 0


@pytest.mark.parametrize("words", [("--help",), ("estimate", "--help"), ("gpus",), ("explain", "MP001")])
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
            [sys.executable, "-c", INJECT.format(body="return (OOM,)"), str(ROOT / "tests" / "report"),
             "estimate", "preset:gpt2", "--gpu", "h100-80g", "--fail-on", "oom"],
            cwd=ROOT, stdout=nobody, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == ""


@pytest.mark.parametrize("words", [["--help"], ["estimate", "--help"], ["gpus"], ["presets"], ["explain", "MP001"]])
def test_light_commands_are_light(words: list[str]) -> None:
    code = (
        "import sys\nfrom memplan.cli.app import main\n"
        f"assert main({words}) == 0\n"
        "print(sorted({'torch', 'numpy', 'transformers', 'diffusers', 'pulp', 'networkx'} & set(sys.modules)),"
        " file=sys.stderr)"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = memplan("-c", code)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.stderr.splitlines()[-1] == "[]"
    seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    assert seconds <= 2 * MAX_LIGHT_SECONDS
