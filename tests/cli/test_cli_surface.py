"""The commands and options that users write into scripts: a change here is a change of the contract."""

import typer

from memplan.cli.app import app

ESTIMATE = {
    "target", "--gpu", "--profile-dir", "--alloc-conf",
    "--allow-network", "--trust-remote-code", "--timeout", "--config",
    "--batch-size", "--seq-len", "--input", "--precision", "--optimizer", "--optimizer-impl", "--grad-accum",
    "--clip-grad-norm", "--attention", "--checkpoint", "--parallel", "--lora", "--quantize", "--loss-chunks",
    "--optimizer-in-backward", "--offload-activations", "--compress-activations", "--compile", "--mode",
    "--max-new-tokens", "--data-dependent",
    "--format", "-f", "--json", "--explain", "--quiet", "-q", "--fail-on", "--exit-zero",
}  # fmt: skip


def test_commands() -> None:
    assert set(typer.main.get_command(app).commands) == {
        "estimate", "checkpoint-plan", "reuse-plan", "recommend", "emit", "simulate", "snapshot", "validate", "gpus",
        "presets", "explain",
    }  # fmt: skip


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


VALIDATE = (ESTIMATE - {"--gpu", "--alloc-conf", "--fail-on", "--exit-zero"}) | {
    "--device", "--steps", "--seconds", "--force", "--keep-snapshot", "--calibrate", "--profile-out",
}  # fmt: skip


def test_options_of_validate() -> None:
    command = typer.main.get_command(app).commands["validate"]
    assert {word for parameter in command.params for word in parameter.opts} == VALIDATE


SIMULATE = (ESTIMATE - {"--alloc-conf", "--fail-on", "--exit-zero"}) | {
    "--steps", "--seq-len-dist", "--seed", "--conf", "--buckets", "--compact-at",
}  # fmt: skip


def test_options_of_simulate() -> None:
    command = typer.main.get_command(app).commands["simulate"]
    assert {word for parameter in command.params for word in parameter.opts} == SIMULATE


def test_options_of_emit() -> None:
    command = typer.main.get_command(app).commands["emit"]
    assert {word for parameter in command.params for word in parameter.opts} == {"plan", "--to", "--out", "-o"}
