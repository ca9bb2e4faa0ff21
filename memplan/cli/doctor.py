"""``memplan doctor``: what memplan finds on this machine, and what it costs to lack the rest."""

import typer

from memplan.cli.console import terminal_width, write_lines, write_plain
from memplan.cli.options import JsonAlone
from memplan.errors import ExitCode


def doctor(*, as_json: JsonAlone = False) -> None:
    """Say what memplan finds here, and what is missing.

    Versions, the names of torch that memplan rests on, solvers, extras, devices and caches. Exit 3 where something is
    missing that memplan cannot do without.
    """
    from memplan.doctor.look import look
    from memplan.report.doctor import text
    from memplan.report.doctor.json import DOCUMENT

    checkup = look()
    if as_json:
        write_plain(DOCUMENT.render(checkup) + "\n")
    else:
        write_lines(text.render(checkup, width=terminal_width()))
    raise typer.Exit(ExitCode.UNKNOWN if checkup.lost else ExitCode.DONE)
