"""The commands of the tutorial and of the how-tos, in their order, with what the pages show of their output."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from memplan.cli.app import command_line

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(?P<language>console|diff|python)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"[+-]?\d[\d.,]*")
SIZE = re.compile(r"N [KMGT]?i?B\b")
PAGES = ("tutorial.md", "how-to.md")


def blocks(page: str) -> list[tuple[str, str]]:
    return [(found["language"], found["text"]) for found in BLOCK.finditer((ROOT / "docs" / page).read_text())]


def commands(text: str) -> list[tuple[str, int, list[str]]]:
    """Command, exit code and the lines shown of its output."""
    parts = re.split(r"^\$ (.*)$", text, flags=re.MULTILINE)[1:]
    found = []
    for typed, shown in zip(parts[::2], parts[1::2], strict=True):
        command, _, said = typed.partition("    # exit code ")
        found.append((command, int(said or 0), [line for line in shown.splitlines() if line.strip("… ")]))
    return found


def shape(line: str) -> str:
    """A line without its figures, bars and spaces, which change with releases of torch."""
    return " ".join(SIZE.sub("N", NUMBER.sub("N", re.sub("[█▏▎▍▌▋▊▉]", "", line))).split())


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    binaries = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    environment = {"PATH": binaries, "PYTHONPATH": str(ROOT), "COLUMNS": "80", "HOME": str(folder), "NO_COLOR": "1"}
    words = shlex.split(command)
    assert words[0] == "memplan"
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=900,
        check=False,
    )  # fmt: skip


def follow(page: str, folder: Path) -> None:
    """Do what a page says, in its order."""
    for language, text in blocks(page):
        if language == "python":
            (folder / "train.py").write_text(text)
        elif language == "diff":
            old, new = ("".join(line[1:] + "\n" for line in text.splitlines() if line[0] == sign) for sign in "-+")
            before = (folder / "train.py").read_text()
            assert before.count(old) == 1
            (folder / "train.py").write_text(before.replace(old, new))
        else:
            for command, code, shown in commands(text):
                done = run(command, folder)
                assert done.returncode == code, done.stdout + done.stderr
                lines = [shape(line) for line in (done.stdout + done.stderr).splitlines()]
                for line in shown:
                    assert any(found.startswith(shape(line)) for found in lines), (line, done.stdout)


@pytest.mark.slow
def test_the_tutorial(tmp_path: Path) -> None:
    follow("tutorial.md", tmp_path)


@pytest.mark.slow
def test_the_how_tos(tmp_path: Path) -> None:
    for extra in ("peft", "bitsandbytes", "transformers"):
        pytest.importorskip(extra)
    follow("how-to.md", Path(shutil.copytree(ROOT / "examples", tmp_path / "examples")))


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_the_pages_have_the_options_that_they_are_given(page: str) -> None:
    typed = [command for language, text in blocks(page) if language == "console" for command, *_ in commands(text)]
    assert len(typed) > 5
    for command in typed:
        own, *_ = command.split(" -- ")
        _, name, *words = shlex.split(own)
        known = {option for parameter in command_line().commands[name].params for option in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= known
