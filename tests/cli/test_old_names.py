"""One name for one thing: options under their old names work, and say what they are called now."""

import pytest

from memplan.cli.app import command_line, main
from memplan.cli.old_names import OLD_NAMES, renamed

PAIRS = [(command, old, new) for command, names in OLD_NAMES.items() for old, new in names.items()]


def options(command: str) -> set[str]:
    return {name for parameter in command_line().commands[command].params for name in parameter.opts}


@pytest.mark.parametrize(("command", "old", "new"), PAIRS)
def test_an_old_name_is_its_new_one_and_a_note_says_so(
    command: str, old: str, new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert new in options(command)
    assert old not in options(command)
    assert renamed([command, "x", old, "a", f"{old}=b=c"]) == [command, "x", new, "a", f"{new}=b=c"]
    assert capsys.readouterr().err == f"note: {old} is called {new} now\n"


def test_words_of_another_program_and_of_other_commands_stay() -> None:
    for words in (["simulate", "t.py", "--", "--conf", "x"], ["estimate", "--save", "x"], [], ["--version"]):
        assert renamed(words) == words


def test_an_old_name_is_taken_and_its_complaint_has_the_new_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", "preset:gpt2", "--gpu", "t4", "--search-budget", "never"]) == 2
    told = capsys.readouterr().err
    assert "note: --search-budget is called --time-limit now" in told
    assert "--time-limit takes a time" in told


MEANINGS = {
    "--timeout": "Limit for running the target's code.",
    "--profile-dir": "Folder of further GPU profiles. Repeatable.",
    "--cache-dir": "Where figures and traces of unchanged jobs are kept.",
    "--json": ("Same as --format json.", "Write JSON instead of the table."),
}


@pytest.mark.parametrize("option", MEANINGS)
def test_a_name_means_one_thing_in_every_command(option: str) -> None:
    said = [
        parameter.help
        for command in command_line().commands.values()
        for parameter in command.params
        if option in parameter.opts
    ]
    assert [text for text in said if not text.startswith(MEANINGS[option])] == []
    assert len(said) > 4


def test_an_output_file_has_its_letter_wherever_it_is_an_option() -> None:
    for command in command_line().commands:
        assert ("--out" in options(command)) == ("-o" in options(command))
    assert not any({"--conf", "--save", "--search-budget"} & options(command) for command in command_line().commands)
