"""``memplan emit``: a setup file as configuration of the framework that runs it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memplan.cli import console, groups, options
from memplan.cli.options import option
from memplan.emit.records import FORMATS, HEAD_ELSEWHERE, Emitted
from memplan.errors import UsageError
from memplan.files.write import write_whole
from memplan.job.setup_file import load_setup
from memplan.job.spec import JobSpec

if TYPE_CHECKING:
    from memplan.emit.formats import Peak
    from memplan.measure.cache import Cache
    from memplan.units import Bytes

File = Annotated[
    Path, typer.Argument(metavar="PLAN", help="Setup file, as memplan recommend writes it.", show_default=False)
]
To = Annotated[str, option("to", None, f"Framework: {', '.join(FORMATS)}.", metavar="NAME")]
Out = Annotated[
    Path | None,
    option(
        "out", None, "Folder for the files.", metavar="DIR", default="standard output, if it is one file", short="-o"
    ),
]
NoTrace = Annotated[
    bool, option("no_trace", None, "Do not trace the peak without what a file does not carry; say that it is another.")
]


@groups.spread
def emit(
    plan: File,
    *,
    to: To,
    out: Out = None,
    no_trace: NoTrace = False,
    profile_dir: options.ProfileDirs = None,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT,
    cache: groups.CacheOptions,
) -> None:
    """Write a setup for a framework: files that it loads.

    What a file does not carry stands in it and on standard error, with the peak without it, traced.
    """
    check_name(to, "--to")
    if out is not None and not out.is_dir():
        raise UsageError(f"--out: there is no folder '{out}'")
    setup = load_setup(plan)
    from memplan.emit import formats

    with console.progress() as tell:
        peak = peak_tracer(setup.gpu, profile_dir or [], timeout=timeout, cache=cache.opened(), tell=tell)
        written = formats.emit(setup, to, None if no_trace else peak)
    write(written, out)


def check_name(name: str, where: str) -> None:
    """Complain of a framework that there is none of.

    Raises:
        UsageError: There is none.
    """
    if name not in FORMATS:
        raise UsageError(f"{where} must be one of {', '.join(FORMATS)}, not '{name}'")


def peak_tracer(
    gpu: str,
    profile_dirs: Sequence[Path],
    *,
    timeout: float,
    cache: "Cache | None",
    tell: Callable[[str], None] | None,
) -> "Peak":
    """What traces a job and returns its device peak on a GPU; a ``MemplanError`` where that cannot be."""

    def peak(job: JobSpec) -> "Bytes":
        from memplan.hardware.catalog import load_profile
        from memplan.measure.compose import device_peak

        profile = load_profile(gpu, profile_dirs=profile_dirs)
        return device_peak(job, profile, timeout=timeout, cache=cache, progress=tell)

    return peak


def write(written: Emitted, folder: Path | None, name_file: Callable[[str], None] = console.write_plain) -> None:
    """Write files to a folder, or the only one to standard output; say what they leave out."""
    if folder is None:
        whole = {name: content for name, content in written.files.items() if name != HEAD_ELSEWHERE}
        if len(whole) > 1:
            raise UsageError(f"these are several files: {', '.join(whole)}", hint="name a folder for them: --out DIR")
        console.write_plain(next(iter(whole.values())))
    else:
        for name, content in written.files.items():
            try:
                write_whole(folder / name, content.encode("utf-8"))
            except OSError as error:
                raise UsageError(f"cannot write '{folder / name}': {error.strerror}") from error
            name_file(f"{folder / name}\n")
    console.tell("".join(f"note: {note}\n" for note in written.notes))
