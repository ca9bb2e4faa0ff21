"""What is shown of a run while it goes on: rows of a terminal or lines, and servers for others to look at."""

import sys
import time
from typing import TYPE_CHECKING, Protocol

from memplan.cli import console
from memplan.cli.monitor_rows import BottomRows

if TYPE_CHECKING:
    from collections.abc import Callable

    from memplan.runtime.monitor.outcome import LevelChange
    from memplan.runtime.monitor.records import Check, RunPlan


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
