"""``memplan report``: a saved result once more, in another format."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memplan.cli import check, gate, options, outputs, report_recording
from memplan.errors import UsageError
from memplan.files.read import real

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.text import Text

    from memplan.gate.saved import Entries
    from memplan.measure.digest_records import HistoryDigest
    from memplan.measure.records import Estimate

_OF_ESTIMATES = tuple(name for name in outputs.ESTIMATE_FORMATS if name not in outputs.EXPORTS)
_FORMATS = tuple(dict.fromkeys((*gate.FORMATS, *_OF_ESTIMATES, *outputs.EXPORTS)))

Plan = Annotated[
    Path | None,
    options.option("plan", options.REPORT, "What estimate --timeline -f json wrote, to lay a recording over it.",
                   metavar="FILE"),
]  # fmt: skip
Formats = Annotated[list[str] | None, options.formats(f"{', '.join(_FORMATS)};")]


def report(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="What estimate -f json, gate -f json or a recording of memplan.profile wrote, or a baseline.",
            show_default=False,
        ),
    ],
    *,
    plan: Plan = None,
    formats: Formats = None,
    as_json: options.AsJson = False,
    explain: options.Explain = False,
    quiet: options.Quiet = False,
) -> None:
    """Show a saved result in another format. Nothing is run."""
    from memplan.gate.saved import load_content, read_digests, read_entries

    problems = check.Problems()
    wanted = problems.of(outputs.parse_outputs, formats or [], as_json, _FORMATS) or ()
    problems.of(_check_files, file, wanted)
    problems.raise_if_any()
    content = load_content(file)
    if content.get("command") == "profile":
        report_recording.write(wanted, content, file, plan, quiet=quiet)
        return
    if plan is not None:
        raise UsageError("--plan is for recordings of memplan.profile", where=str(file))
    if content.get("command") == "gate":
        from memplan.report.gate.json import read_gate

        result = read_gate(content, str(file))
        for output in wanted:
            gate.write(output, result, quiet=quiet)
        return
    entries = read_entries(content, str(file))
    digests = read_digests(content, str(file))
    for output in wanted:
        _check_is_of_estimates(output)
    for output in wanted:
        _write_estimates(output, entries, digests, explain=explain, quiet=quiet)


def _check_files(file: Path, wanted: "Sequence[outputs.Output]") -> None:
    if any(output.file and real(output.file) == real(file) for output in wanted):
        raise UsageError(f"a report would be written over '{file}', which it is made of", hint="name another file")


def _check_is_of_estimates(output: outputs.Output) -> None:
    if output.is_export:
        what = f"--format {output.format} is for recordings of memplan.profile"
        raise UsageError(what, hint="memplan estimate writes that of a prediction")
    if output.format not in _OF_ESTIMATES:
        what = f"--format {output.format} is for results of memplan gate"
        raise UsageError(what, hint=f"estimates have {', '.join(_OF_ESTIMATES)}")


def _write_estimates(
    output: outputs.Output,
    entries: "Entries",
    digests: "Mapping[tuple[str, str], HistoryDigest]",
    *,
    explain: bool,
    quiet: bool,
) -> None:
    if output.format == "text":
        outputs.write_rendered(output, text=lambda width: _lines(entries, width=width, explain=explain, quiet=quiet))
        return
    kept = [digests.get(key) for key in entries]
    outputs.write(output, [*entries.values()], explain=explain, quiet=quiet, digests=kept, timeline=True)


def _lines(entries: "Entries", *, width: int, explain: bool, quiet: bool) -> "list[Text]":
    """The reports of all jobs, one below the other, each with its name where there are several."""
    from rich.text import Text

    from memplan.report.estimate.text import render as render_text
    from memplan.text import clean

    jobs: dict[str, list[Estimate]] = {}
    for (job, _), estimate in entries.items():
        jobs.setdefault(job, []).append(estimate)
    lines: list[Text] = []
    for job, estimates in jobs.items():
        title = [*([Text("")] if lines else []), Text(clean(job), style="bold underline"), Text("")]
        lines += title if len(jobs) > 1 else []
        lines += render_text(estimates, width=width, explain=explain, quiet=quiet)
    return lines
