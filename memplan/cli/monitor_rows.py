"""Rows at the bottom of a terminal that stay while everything above them scrolls: what package managers do.

The command writes to the terminal as if they were not there; nothing that it writes is read, held up or lost.
"""

import os
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

_LEAST_ABOVE = 8
"""Rows that must remain for the command, or none are taken."""
_SAVE, _RESTORE, _CLEAR_ROW = "\x1b7", "\x1b8", "\x1b[2K"


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
