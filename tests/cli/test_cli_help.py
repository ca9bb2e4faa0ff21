"""``--help`` shows every word that the source has: Rich's markup, in which Typer writes help, takes none away."""

import re

import pytest
import typer

from memplan.cli.app import command_line, main, typer_app
from memplan.cli.help import BASIC, MANY, RARE
from memplan.job.options import OPTIONS

COMMANDS = typer.main.get_command(typer_app()).commands
"""As Typer reads them from the source, before anything is done to their help."""


def _shown(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    # So wide that no text of help is broken into two columns' lines.
    monkeypatch.setenv("COLUMNS", "2000")
    assert main([*arguments, "--help" if "--help-all" not in _options(arguments) else "--help-all"]) == 0
    return _words(re.sub("[│─╭╮╰╯]", " ", capsys.readouterr().out))


def _options(arguments: list[str]) -> set[str]:
    command = command_line().commands[arguments[0]] if arguments else command_line()
    return {name for parameter in command.params for name in parameter.opts}


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
    assert "<bool>" not in shown
    firsts = [(command.help or "").partition("\n\n")[0] for command in COMMANDS.values()]
    assert [text for text in firsts if _words(text) not in shown] == []


def test_brackets_in_help_are_brackets(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("gate", "sweep"):
        assert "memplan.toml, or [tool.memplan] of pyproject.toml" in _shown([name], monkeypatch, capsys)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_short_and_says_how_to_see_the_rest(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for asked in ("-h", "--help"):
        assert main([name, asked]) == 0
        shown = capsys.readouterr().out
        listed = set(re.findall(r"^│ +(?:\* +)?(--[a-z0-9-]+)", shown, re.MULTILINE))
        assert len(listed) <= 1.1 * MANY
        hidden = {
            option for parameter in COMMANDS[name].params for option in parameter.opts if option[:2] == "--"
        } - listed
        assert ("--help-all" in listed) == bool(hidden)
        assert bool(hidden) == (f"memplan {name} --help-all" in shown)
        # Types of Python are no words for a value: Typer would show <bool>, <list[str]>.
        assert re.findall(r"<\S+>", shown) == []


def test_what_help_sorts_are_options() -> None:
    named = {parameter.name for command in COMMANDS.values() for parameter in command.params}
    assert named >= BASIC | RARE
    assert set(OPTIONS) >= BASIC
