"""What is shown of a run while it goes on: rows of a terminal or lines, and servers for others to look at.

Rows at the bottom of a terminal stay while everything above them scrolls, as those of package managers do: the
command writes to the terminal as if they were not there; nothing that it writes is read, held up or lost.
"""

import os
import sys
import time
from typing import TYPE_CHECKING, Protocol, TextIO

from memplan.cli import console

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.text import Text

    from memplan.runtime.monitor.outcome import LevelChange
    from memplan.runtime.monitor.records import Check, RunPlan


_LEAST_ABOVE = 8
"""Rows that must remain for the command, or none are taken."""
_SAVE, _RESTORE, _CLEAR_ROW = "\x1b7", "\x1b8", "\x1b[2K"


class Display:
    """Shows checks while the command runs: rows of a terminal, or a line for each change of the level."""

    def __init__(self, *, quiet: bool) -> None:
        from memplan.report.monitor.live import ROWS

        self._started = time.time()
        live = not quiet and sys.stderr is not None and sys.stderr.isatty()
        self._rows = BottomRows(sys.stderr, ROWS) if live else None

    def __enter__(self) -> None:
        if self._rows is not None and not self._rows.open():
            self._rows = None

    def __exit__(self, *_: object) -> None:
        if self._rows is not None:
            self._rows.close()

    def show(self, made: "Check", change: "LevelChange | None") -> None:
        """Called with every check."""
        from memplan.report.monitor.live import render
        from memplan.report.monitor.text import change_line

        if self._rows is not None:
            lines = render(made, seconds=time.time() - self._started, width=console.terminal_width())
            self._rows.draw(lines)
        elif change is not None and (change.level or made.number):
            line = change_line(change.seconds, change.step, change.level.word, change.sentence)
            console.write_plain(line + "\n", sys.stderr)


class RunningServer(Protocol):
    """A server under way."""

    @property
    def address(self) -> str:
        """Where it listens, ``127.0.0.1:9108``."""

    def close(self) -> None:
        """Stop it."""


class Start(Protocol):
    """Starts one."""

    def __call__(
        self, source: "Callable[[], Check | None]", *, host: str, port: int, job: str, plan: "RunPlan | None"
    ) -> RunningServer:
        """Serve what the source says at each moment."""


def server(name: str) -> Start:
    """What starts the server that an option is named after."""
    if name == "prometheus":
        from memplan.runtime.metrics.exporter import start as start_exporter

        return start_exporter
    from memplan.runtime.web.server import start as start_page

    return start_page


class BottomRows:
    """Takes rows from ``open`` to ``close``; one thread at a time.

    Args:
        terminal: The terminal.
        rows: How many to take.
    """

    def __init__(self, terminal: TextIO, rows: int) -> None:
        self._terminal = terminal
        self._fd = terminal.fileno()
        self._rows = rows
        self._height = 0

    def open(self) -> bool:
        """Take the rows; False where the terminal is too small."""
        height = self._terminal_height()
        if height < self._rows + _LEAST_ABOVE:
            return False
        # New lines first, so that what stood there moves up instead of being written over.
        self._write("\n" * self._rows + f"\x1b[{self._rows}A")
        self._fence(height)
        return True

    def draw(self, lines: "Sequence[Text]") -> None:
        """Write the rows, each no wider than the terminal."""
        height = self._terminal_height()
        if height < self._rows + _LEAST_ABOVE:
            return  # It was made too small meanwhile.
        if height != self._height:
            self._fence(height)
        first = self._height - self._rows + 1
        styled = self._styled(lines[: self._rows])
        rows = (f"\x1b[{first + index};1H{_CLEAR_ROW}{line}" for index, line in enumerate(styled))
        # In one write, so that what the command writes meanwhile stands before or after it, not in its midst.
        self._write(_SAVE + "".join(rows) + _RESTORE)

    def close(self) -> None:
        """Give the rows back, empty."""
        first = self._height - self._rows + 1
        rows = "".join(f"\x1b[{first + index};1H{_CLEAR_ROW}" for index in range(self._rows))
        self._write(f"{_SAVE}\x1b[r{rows}{_RESTORE}")

    def _styled(self, lines: "Sequence[Text]") -> list[str]:
        from rich.console import Console

        console = Console(file=self._terminal, highlight=False)
        with console.capture() as captured:
            for line in lines:
                console.print(line, no_wrap=True, overflow="ignore", crop=True)
        return captured.get().split("\n")[: len(lines)]

    def _fence(self, height: int) -> None:
        """Let only the rows above scroll."""
        self._height = height
        self._write(f"{_SAVE}\x1b[1;{height - self._rows}r{_RESTORE}")

    def _terminal_height(self) -> int:
        try:
            return os.get_terminal_size(self._fd).lines
        except OSError:
            return 0

    def _write(self, text: str) -> None:
        data = text.encode("utf-8", errors="replace")
        while data:
            data = data[os.write(self._fd, data) :]
