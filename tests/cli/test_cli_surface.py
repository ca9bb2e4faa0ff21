"""The commands and options that users write into scripts: a change here is a change of the contract."""

import subprocess
import sys

import typer

from memplan.cli.app import COMMANDS, typer_app
from memplan.cli.options import flag
from memplan.job.options import OPTIONS
from tests.cli.options import CACHE, ESTIMATE


def test_commands() -> None:
    assert set(typer.main.get_command(typer_app()).commands) == {
        "estimate", "checkpoint-plan", "reuse-plan", "recommend", "batch", "emit", "simulate", "snapshot", "validate",
        "monitor", "gpus", "numa", "presets", "explain", "schema", "doctor", "init", "sweep",
        "gate", "graph", "formula", "audit", "diff", "report", "open",
    }  # fmt: skip


def test_options_of_estimate() -> None:
    command = typer.main.get_command(typer_app()).commands["estimate"]
    assert {word for parameter in command.params for word in parameter.opts} == ESTIMATE | CACHE | {
        "--redact",
        "--timeline",
        "--plot",
        "--steps",
        "--seq-len-dist",
        "--seed",
        "--prices",
    }
    assert not [word for parameter in command.params for word in parameter.secondary_opts]


SNAPSHOT = {
    "file", "--device", "--recorded-conf", "--alloc-conf", "--max-size", "--top", "--format", "-f", "--json", "--quiet",
    "-q",
}  # fmt: skip


def test_options_of_snapshot() -> None:
    command = typer.main.get_command(typer_app()).commands["snapshot"]
    assert {word for parameter in command.params for word in parameter.opts} == SNAPSHOT


VALIDATE = (ESTIMATE - {"--gpu", "--alloc-conf", "--fail-on", "--exit-zero"}) | {
    "--device", "--steps", "--seconds", "--force", "--keep-snapshot", "--calibrate", "--out", "-o",
}  # fmt: skip


def test_options_of_validate() -> None:
    command = typer.main.get_command(typer_app()).commands["validate"]
    assert {word for parameter in command.params for word in parameter.opts} == VALIDATE


SIMULATE = (ESTIMATE - {"--alloc-conf", "--exit-zero"}) | {
    "--steps", "--seq-len-dist", "--seed", "--alloc-conf", "--buckets", "--compact-at",
}  # fmt: skip


def test_options_of_simulate() -> None:
    command = typer.main.get_command(typer_app()).commands["simulate"]
    assert {word for parameter in command.params for word in parameter.opts} == SIMULATE | CACHE


def test_options_of_emit() -> None:
    command = typer.main.get_command(typer_app()).commands["emit"]
    own = {"plan", "--to", "--out", "-o", "--no-trace", "--profile-dir", "--timeout"}
    assert {word for parameter in command.params for word in parameter.opts} == own | CACHE


def test_options_of_init() -> None:
    command = typer.main.get_command(typer_app()).commands["init"]
    own = {"target", "--gpu", "--name", "--timeout", "--as", "--config", "--target-file"}
    assert {word for parameter in command.params for word in parameter.opts} == own | {flag(name) for name in OPTIONS}


SWEEP = {
    "jobs_file", "--job", "--gpu", "--gpus", "--profile-dir", "--backend", "--address", "--time-limit", "--allow",
    "--jobs", "--format", "-f", "--json", "--quiet", "-q", "--exit-zero",
}  # fmt: skip


def test_options_of_sweep() -> None:
    command = typer.main.get_command(typer_app()).commands["sweep"]
    assert {word for parameter in command.params for word in parameter.opts} == SWEEP


GATE = {
    "wanted_jobs", "--project", "--gpu", "--profile-dir", "--fail-on", "--baseline", "--update-baseline", "--jobs",
    "--cache-dir", "--no-cache", "--format", "-f", "--timeline", "--json", "--quiet", "-q", "--exit-zero",
}  # fmt: skip


def test_options_of_gate() -> None:
    command = typer.main.get_command(typer_app()).commands["gate"]
    assert {word for parameter in command.params for word in parameter.opts} == GATE


def test_options_of_diff() -> None:
    command = typer.main.get_command(typer_app()).commands["diff"]
    assert {word for parameter in command.params for word in parameter.opts} == {
        "base", "head", "--project", "--gpu", "--profile-dir", "--jobs", "--format", "-f", "--json", "--quiet", "-q",
    }  # fmt: skip


def test_options_of_report() -> None:
    command = typer.main.get_command(typer_app()).commands["report"]
    assert {word for parameter in command.params for word in parameter.opts} == {
        "file", "--plan", "--format", "-f", "--json", "--explain", "--quiet", "-q",
    }  # fmt: skip


def test_options_of_numa() -> None:
    command = typer.main.get_command(typer_app()).commands["numa"]
    assert {word for parameter in command.params for word in parameter.opts} == {
        "command", "--ranks", "--workers", "--pinned-per-rank", "--step-bytes",
        "--strict", "--sysfs", "--out", "-o", "--format", "-f",
        "--json", "--quiet", "-q",
    }  # fmt: skip


AUDIT = {
    "paths", "--select", "--ignore", "--exclude", "--severity", "--jobs", "--format", "-f", "--diff", "--json",
    "--quiet", "-q", "--fail-on",
}  # fmt: skip


def test_options_of_audit() -> None:
    command = typer.main.get_command(typer_app()).commands["audit"]
    assert {word for parameter in command.params for word in parameter.opts} == AUDIT


MONITOR = {
    "command", "--plan", "--gpu", "--interval", "--levels", "--outside", "--count-cpu", "--snapshots", "--log",
    "--fail-on", "--prometheus", "--web", "--job", "--format", "-f", "--quiet", "-q",
}  # fmt: skip


def test_options_of_monitor() -> None:
    command = typer.main.get_command(typer_app()).commands["monitor"]
    assert {word for parameter in command.params for word in parameter.opts} == MONITOR


def test_a_command_imports_no_other() -> None:
    code = "import sys; from memplan.cli.app import main; main(['explain', 'MP001']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()[-1].split()
    own = {f"memplan.cli.{name.replace('-', '_')}" for name in COMMANDS}
    assert own & set(loaded) == {"memplan.cli.explain"}
