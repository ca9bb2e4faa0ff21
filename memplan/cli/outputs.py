"""``--format`` and ``--json``: which reports and exports are written, and where."""

import io
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from memplan.cli import console
from memplan.errors import UsageError
from memplan.files.write import write_whole

if TYPE_CHECKING:
    from rich.text import Text

    from memplan.cli.groups import JobOptions
    from memplan.hardware.profile import GpuProfile
    from memplan.measure.digest_records import HistoryDigest
    from memplan.measure.records import Estimate, RecordedEstimate
    from memplan.snapshot.records import Snapshot

REPORTS = ("text", "json")
"""What shows estimates, all in one."""
EXPORTS = ("snapshot", "perfetto", "speedscope")
"""What shows one memory history, for the viewers that it is named after."""
BINARY = ("snapshot",)
"""What never goes to standard output."""
BESIDE = ("github",)
"""What goes to standard output beside a report: lines that GitHub takes out of the log."""
FORMATS = (*REPORTS, *EXPORTS)
ESTIMATE_FORMATS = (*REPORTS, "html", *EXPORTS)
GPU_PLACE = "{gpu}"
"""What stands for the GPU's name in the name of an export's file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One report or export to write."""

    format: str
    """One of ``FORMATS``."""
    file: Path | None
    """Where to; None is standard output."""

    @property
    def is_export(self) -> bool:
        """Is it of a memory history rather than of an estimate?"""
        return self.format in EXPORTS


def parse_outputs(formats: Sequence[str], as_json: bool, known: Sequence[str] = REPORTS) -> tuple[Output, ...]:
    """Read ``text``, ``json``, ``json=FILE`` and so on; where no report is asked for, text goes to standard output.

    Args:
        formats: As typed.
        as_json: ``--json`` was typed too.
        known: The formats that the command writes.

    Raises:
        UsageError: Unknown format, a folder that does not exist, or two reports for standard output.
    """
    outputs = tuple(_parse_output(text, known) for text in [*formats, *(["json"] if as_json else [])])
    if sum(output.file is None and output.format not in BESIDE for output in outputs) > 1:
        raise UsageError("only one report can go to standard output", hint="name a file: -f json=report.json")
    if all(output.is_export and output.file for output in outputs):
        return (Output(format="text", file=None), *outputs)
    return outputs


def _parse_output(text: str, known: Sequence[str]) -> Output:
    name, equals, file = text.partition("=")
    if name not in known:
        raise UsageError(f"--format must be one of {', '.join(known)}, not '{name}'")
    if not equals:
        if name in BINARY:
            raise UsageError(f"--format {name} is no text", hint=f"name a file: -f {name}=memory.pickle")
        return Output(format=name, file=None)
    path = Path(file)
    # Checked before the trace, so that minutes of work are not lost to a typing error.
    if not file or path.is_dir() or not path.parent.is_dir():
        raise UsageError(f"--format {text}: cannot write a file '{file}'", hint="name a file in a folder that exists")
    return Output(format=name, file=path)


def check_exports(outputs: Sequence[Output], profiles: "Sequence[GpuProfile]") -> None:
    """Each history needs a file of its own.

    Raises:
        UsageError: Several GPUs, and an export whose file's name does not say which.
    """
    for output in outputs:
        if output.is_export and len(profiles) > 1 and GPU_PLACE not in (output.file.name if output.file else ""):
            hint = f"put {GPU_PLACE} into the name: -f {output.format}=memory-{GPU_PLACE}.out"
            raise UsageError(f"--format {output.format} needs a file for each --gpu", hint=hint)


def write(
    output: Output,
    estimates: "Sequence[Estimate]",
    *,
    explain: bool,
    quiet: bool,
    digests: "Sequence[HistoryDigest | None] | None" = None,
    timeline: bool = False,
    plot: bool = False,
    commands: Mapping[str, str] | None = None,
) -> None:
    """Render one report of estimates and put it where it belongs.

    Args:
        output: Format and file.
        estimates: What is shown.
        explain: Say all.
        quiet: Say little.
        digests: The history of each for the page; None: there are none.
        timeline: Put them into JSON, too.
        plot: Draw that of the one that the text shows in detail.
        commands: GPU's name → the command that searches for what fits there.
    """
    from memplan.report.estimate.json import render as render_json
    from memplan.report.estimate.text import render as render_text

    kept = digests or [None] * len(estimates)
    write_rendered(
        output,
        text=lambda width: render_text(
            estimates,
            width=width,
            explain=explain,
            quiet=quiet,
            commands=commands or {},
            digests=kept if plot else (),
        ),
        json=lambda: render_json(estimates, kept if timeline else ()),
        html=lambda: _page(estimates, kept),
    )


def searches(target: Sequence[str], job: "JobOptions", profiles: "Sequence[GpuProfile]") -> dict[str, str]:
    """The GPU's name → the command that looks for a configuration of this job that fits."""
    words, program = target[:1], target[1:]
    behind = ["--", *program] if program else []
    return {
        profile.name: shlex.join(["memplan", "recommend", *words, *job.words(), "--gpu", profile.name, *behind])
        for profile in profiles
    }


def _page(estimates: "Sequence[Estimate]", digests: "Sequence[HistoryDigest | None]") -> str:
    from memplan.measure.records import RecordedEstimate
    from memplan.report.html.estimate import render

    pairs = zip(estimates, digests, strict=True)
    return render([RecordedEstimate(estimate=estimate, history=None, digest=digest) for estimate, digest in pairs])


def write_rendered(output: Output, *, text: "Callable[[int], list[Text]]", **others: Callable[[], str]) -> None:
    """Render one report and put it where it belongs.

    Args:
        output: Format and file.
        text: Renders lines for a width in terminal cells.
        others: Format → renders it as one text (``json`` …).

    Raises:
        UsageError: The file cannot be written.
    """
    if output.file is None:
        _write_to(None, output.format, text, others)
        return
    # Rendered before the file is opened, so that an interruption leaves no half of a report.
    page = io.StringIO()
    _write_to(page, output.format, text, others)
    _write_file(output.file, page.getvalue().encode("utf-8"))


def _write_to(
    file: TextIO | None, name: str, text: "Callable[[int], list[Text]]", others: Mapping[str, Callable[[], str]]
) -> None:
    if name in others:
        console.write_plain(others[name]().rstrip("\n") + "\n", file)
        return
    console.write_lines(text(console.PLAIN_WIDTH if file else console.terminal_width()), file)


def write_exports(output: Output, results: "Sequence[RecordedEstimate]") -> None:
    """Write the history of every estimate that has one."""
    for result in results:
        gpu = result.estimate.gpu.name
        if result.history is None:
            console.tell(f"no {output.format} for {gpu}: its verdict is UNKNOWN\n")
            continue
        named = output.file and output.file.with_name(output.file.name.replace(GPU_PLACE, gpu))
        write_export(Output(format=output.format, file=named), result.history, f"{result.estimate.target} on {gpu}")


def write_export(output: Output, history: "Snapshot", name: str) -> None:
    """Write one history.

    Raises:
        UsageError: The file cannot be written.
    """
    content = _rendered(output.format, history, name)
    if output.file is None:
        console.write_plain(content.decode("utf-8") + "\n")
        return
    _write_file(output.file, content)


def write_file(output: Output, content: bytes) -> None:
    """Write what is no text; it always has a file.

    Raises:
        UsageError: The file cannot be written.
    """
    assert output.file is not None  # noqa: S101 - commands refuse it without.
    _write_file(output.file, content)


def _write_file(file: Path, content: bytes) -> None:
    try:
        write_whole(file, content)
    except OSError as error:
        raise UsageError(f"cannot write '{file}': {error.strerror}") from error


def _rendered(name: str, history: "Snapshot", title: str) -> bytes:
    if name == "snapshot":
        from memplan.report.history.viewer import render as render_snapshot

        return render_snapshot(history)
    if name == "perfetto":
        from memplan.report.history.perfetto import render as render_perfetto

        return render_perfetto(history, name=title).encode("utf-8")
    from memplan.report.history.speedscope import render as render_speedscope

    return render_speedscope(history, name=title).encode("utf-8")
