"""``memplan emit``: a setup file as configuration of the framework that runs it."""

from pathlib import Path
from typing import Annotated

import typer

from memplan.cli import console
from memplan.cli.options import option
from memplan.emit import formats
from memplan.emit.records import Emitted
from memplan.errors import UsageError
from memplan.files.write import write_whole
from memplan.job.setup_file import load_setup

File = Annotated[
    Path, typer.Argument(metavar="PLAN", help="Setup file, as memplan recommend writes it.", show_default=False)
]
To = Annotated[str, option("to", None, f"Framework: {', '.join(formats.FORMATS)}.", metavar="NAME")]
Out = Annotated[
    Path | None,
    option(
        "out", None, "Folder for the files.", metavar="DIR", default="standard output, if it is one file", short="-o"
    ),
]


def emit(plan: File, *, to: To, out: Out = None) -> None:
    """Write a setup for a framework: files that it loads.

    What the framework has no word for is listed on standard error.
    """
    if to not in formats.FORMATS:
        raise UsageError(f"--to must be one of {', '.join(formats.FORMATS)}, not '{to}'")
    if out is not None and not out.is_dir():
        raise UsageError(f"--out: there is no folder '{out}'")
    written = formats.emit(load_setup(plan), to)
    _write(written, out)
    console.tell("".join(f"note: {note}\n" for note in written.notes))


def _write(written: Emitted, folder: Path | None) -> None:
    if folder is None:
        if len(written.files) > 1:
            names = ", ".join(written.files)
            raise UsageError(f"these are several files: {names}", hint="name a folder for them: --out DIR")
        console.write_plain(next(iter(written.files.values())))
        return
    for name, content in written.files.items():
        try:
            write_whole(folder / name, content.encode("utf-8"))
        except OSError as error:
            raise UsageError(f"cannot write '{folder / name}': {error.strerror}") from error
        console.write_plain(f"{folder / name}\n")
