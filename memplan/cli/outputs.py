"""``--format`` and ``--json``: which reports are written, and where."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from memplan.cli import console
from memplan.errors import UsageError

if TYPE_CHECKING:
    from memplan.estimate.records import Estimate

FORMATS = ("text", "json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One report to write."""

    format: str
    """``text`` or ``json``."""
    file: Path | None
    """Where to; None is standard output."""


def parse_outputs(formats: Sequence[str], as_json: bool) -> tuple[Output, ...]:
    """Read ``text``, ``json`` and ``json=FILE``; nothing asked for means text to standard output.

    Raises:
        UsageError: Unknown format, a folder that does not exist, or two reports for standard output.
    """
    outputs = tuple(_parse_output(text) for text in [*formats, *(["json"] if as_json else [])])
    if sum(output.file is None for output in outputs) > 1:
        raise UsageError("only one report can go to standard output", hint="name a file: -f json=report.json")
    return outputs or (Output(format="text", file=None),)


def _parse_output(text: str) -> Output:
    name, equals, file = text.partition("=")
    if name not in FORMATS:
        raise UsageError(f"--format must be one of {', '.join(FORMATS)}, not '{name}'")
    if not equals:
        return Output(format=name, file=None)
    path = Path(file)
    # Checked before the trace, so that minutes of work are not lost to a typing error.
    if not file or path.is_dir() or not path.parent.is_dir():
        raise UsageError(f"--format {text}: cannot write a file '{file}'", hint="its folder must exist")
    return Output(format=name, file=path)


def write(output: Output, estimates: "Sequence[Estimate]", *, explain: bool, quiet: bool) -> None:
    """Render one report and put it where it belongs."""
    if output.file is None:
        _write_to(None, output.format, estimates, explain=explain, quiet=quiet)
        return
    try:
        with output.file.open("w", encoding="utf-8") as file:
            _write_to(file, output.format, estimates, explain=explain, quiet=quiet)
    except OSError as error:
        raise UsageError(f"cannot write '{output.file}': {error.strerror}") from error


def _write_to(file: TextIO | None, name: str, estimates: "Sequence[Estimate]", *, explain: bool, quiet: bool) -> None:
    if name == "json":
        from memplan.report.json import render as render_json

        console.write_plain(render_json(estimates) + "\n", file)
        return
    from memplan.report.text import render as render_text

    width = console.PLAIN_WIDTH if file else console.terminal_width()
    console.write_lines(render_text(estimates, width=width, explain=explain, quiet=quiet), file)
