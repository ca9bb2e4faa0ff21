"""``memplan open``: a saved result as its page, in the browser."""

import tempfile
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from memplan.cli import console, report
from memplan.errors import UsageError
from memplan.files.read import is_file


def open_page(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="RESULT", show_default=False, help="What -f json or -f html wrote, a recording, or a baseline."
        ),
    ],
) -> None:
    """Open a saved result in the browser, as a page.

    A page opens as it is; of JSON one is made in a folder for temporary files. Nothing is sent.
    """
    if not is_file(file):
        raise UsageError(f"there is no file '{file}'")
    page = file
    if file.suffix not in (".html", ".htm"):
        page = Path(tempfile.mkdtemp(prefix="memplan-")) / f"{file.stem}.html"
        report.report(file, formats=[f"html={page}"])
    console.write_plain(f"{page}\n")
    if not webbrowser.open(page.resolve().as_uri()):
        console.tell("note: there is no browser here: open that file elsewhere, it needs nothing else\n")
