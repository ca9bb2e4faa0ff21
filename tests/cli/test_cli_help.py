"""``--help`` shows every word that the source has: Rich's markup, in which Typer writes help, takes none away."""

import re

import pytest
import typer

from memplan.cli.app import app, main

COMMANDS = typer.main.get_command(app).commands
"""As Typer reads them from the source, before anything is done to their help."""


def _shown(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    # So wide that no text of help is broken into two columns' lines.
    monkeypatch.setenv("COLUMNS", "2000")
    assert main([*arguments, "--help"]) == 0
    return _words(re.sub("[│─╭╮╰╯]", " ", capsys.readouterr().out))


def _words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_loses_no_word(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = _shown([name], monkeypatch, capsys)
    command = COMMANDS[name]
    told = [command.help, *(parameter.help for parameter in command.params)]
    assert [text for text in told if _words(text or "") not in shown] == []


def test_help_of_memplan_loses_no_word(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shown = _shown([], monkeypatch, capsys)
    firsts = [(command.help or "").partition("\n\n")[0] for command in COMMANDS.values()]
    assert [text for text in firsts if _words(text) not in shown] == []


def test_brackets_in_help_are_brackets(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("gate", "sweep"):
        assert "memplan.toml, or [tool.memplan] of pyproject.toml" in _shown([name], monkeypatch, capsys)
