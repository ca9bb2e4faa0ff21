"""The command line as tests run it: in this process, its output caught as a shell would see it.

What only a process of its own shows (pipes, signals, imports, the interpreter's own start) is tested on real ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from memplan.cli.app import main

_NOT_KEPT = ("MEMPLAN_DEBUG", "COLUMNS", "PYTHONWARNINGS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A command that has ended."""

    returncode: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """Runs commands; made by the fixture ``memplan``."""

    captured: pytest.CaptureFixture[str]

    def __call__(self, *words: str, folder: Path, variables: Mapping[str, str] | None = None) -> Done:
        """Run ``memplan`` with these words in a folder."""
        self.captured.readouterr()
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            for name in _NOT_KEPT:
                patch.delenv(name, raising=False)
            for name, value in (variables or {}).items():
                patch.setenv(name, value)
            code = main(list(words))
        out, err = self.captured.readouterr()
        return Done(returncode=code, stdout=out, stderr=err)
