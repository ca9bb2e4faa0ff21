"""The commands and options that users write into scripts: a change here is a change of the contract."""

import typer

from memplan.cli.app import app

ESTIMATE = {
    "target", "--gpu", "--profile-dir",
    "--allow-network", "--trust-remote-code", "--timeout",
    "--batch-size", "--seq-len", "--input", "--precision", "--optimizer", "--optimizer-impl", "--grad-accum",
    "--clip-grad-norm", "--attention", "--checkpoint", "--mode", "--max-new-tokens", "--data-dependent",
    "--format", "-f", "--json", "--explain", "--quiet", "-q", "--fail-on", "--exit-zero",
}  # fmt: skip


def test_commands() -> None:
    assert set(typer.main.get_command(app).commands) == {"estimate", "gpus", "presets", "explain"}


def test_options_of_estimate() -> None:
    command = typer.main.get_command(app).commands["estimate"]
    assert {word for parameter in command.params for word in parameter.opts} == ESTIMATE
    assert not [word for parameter in command.params for word in parameter.secondary_opts]
