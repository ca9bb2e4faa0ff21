"""The commands and options that users write into scripts: a change here is a change of the contract."""

import typer

from memplan.cli.app import app

ESTIMATE = {
    "target", "--gpu", "--profile-dir",
    "--allow-network", "--trust-remote-code", "--timeout",
    "--batch-size", "--seq-len", "--input", "--precision", "--optimizer", "--optimizer-impl", "--grad-accum",
    "--clip-grad-norm", "--attention", "--checkpoint", "--compile", "--mode", "--max-new-tokens", "--data-dependent",
    "--format", "-f", "--json", "--explain", "--quiet", "-q", "--fail-on", "--exit-zero",
}  # fmt: skip


def test_commands() -> None:
    assert {"estimate", "gpus", "presets", "explain", "snapshot", "validate", "simulate"} <= set(
        typer.main.get_command(app).commands
    )


def test_options_of_estimate() -> None:
    command = typer.main.get_command(app).commands["estimate"]
    assert {word for parameter in command.params for word in parameter.opts} == ESTIMATE
    assert not [word for parameter in command.params for word in parameter.secondary_opts]


SNAPSHOT = {
    "file", "--device", "--conf", "--replay-conf", "--top", "--format", "-f", "--json", "--quiet", "-q",
}  # fmt: skip


def test_options_of_snapshot() -> None:
    command = typer.main.get_command(app).commands["snapshot"]
    assert {word for parameter in command.params for word in parameter.opts} == SNAPSHOT


VALIDATE = (ESTIMATE - {"--gpu", "--fail-on", "--exit-zero"}) | {
    "--device", "--steps", "--seconds", "--force", "--keep-snapshot", "--calibrate", "--profile-out",
}  # fmt: skip


def test_options_of_validate() -> None:
    command = typer.main.get_command(app).commands["validate"]
    assert {word for parameter in command.params for word in parameter.opts} == VALIDATE


SIMULATE = (ESTIMATE - {"--fail-on", "--exit-zero"}) | {
    "--steps", "--seq-len-dist", "--seed", "--conf", "--buckets", "--compact-at",
}  # fmt: skip


def test_options_of_simulate() -> None:
    command = typer.main.get_command(app).commands["simulate"]
    assert {word for parameter in command.params for word in parameter.opts} == SIMULATE
