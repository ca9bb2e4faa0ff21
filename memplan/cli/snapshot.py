"""``memplan snapshot``: what a CUDA memory snapshot says, and whether the allocator's model agrees with it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memplan.cli import check, console, options, outputs
from memplan.cli.options import option
from memplan.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memplan.snapshot.analysis import SnapshotAnalysis
    from memplan.snapshot.records import DeviceSnapshot, Snapshot

DEFAULT_TOP = 8


def snapshot(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="Written by torch.cuda.memory._dump_snapshot().", show_default=False),
    ],
    *,
    device: Annotated[
        int | None, option("device", None, "Device to show.", metavar="N", default="that with most history")
    ] = None,
    recorded_conf: Annotated[
        str | None,
        option(
            "recorded_conf",
            None,
            "The PYTORCH_CUDA_ALLOC_CONF that the process ran with.",
            metavar="CONF",
            default="what the file says",
        ),
    ] = None,
    alloc_confs: Annotated[
        list[str] | None,
        option(
            "alloc_confs",
            None,
            "Also replay the same allocations under this PYTORCH_CUDA_ALLOC_CONF. Repeatable.",
            metavar="CONF",
        ),
    ] = None,
    max_size: Annotated[
        str | None, option("max_size", None, "Largest file that is read.", metavar="BYTES", default="1GiB")
    ] = None,
    top: Annotated[int, option("top", None, "Owners to list.", metavar="N", default="8")] = DEFAULT_TOP,
    formats: options.FormatsOfEstimate = None,
    as_json: options.AsJson = False,
    quiet: Annotated[bool, option("quiet", None, "Only the first line.", short="-q")] = False,
) -> None:
    """Analyse a CUDA memory snapshot: peak, owners, replay.

    Its requests are replayed under the same allocator settings, to check the replay, and under others.
    """
    from memplan.replay.conf import parse_conf
    from memplan.snapshot.analysis import analyse
    from memplan.snapshot.policy import recorded_policy
    from memplan.snapshot.read import MOST, load_snapshot

    problems = check.Problems()
    reports = problems.of(outputs.parse_outputs, formats or [], as_json, outputs.ESTIMATE_FORMATS) or ()
    for text in [*([recorded_conf] if recorded_conf is not None else []), *(alloc_confs or [])]:
        problems.of(parse_conf, text)
    most = problems.of(check.size, "--max-size", max_size)
    if top < 1:
        problems.add(f"--top must be at least 1, not {top}")
    problems.raise_if_any()
    with console.progress() as tell:
        if tell:
            tell("reading")
        found = load_snapshot(file, most or MOST)
        recorded = recorded_policy(found.settings, recorded_conf)
        chosen = _chosen(found, device, file)
        if tell:
            tell("replaying")
        analyses = [analyse(one, recorded, alloc_confs or ()) for one in chosen]
    for report in reports:
        if report.is_export:
            outputs.write_export(report, found, file.name)
        else:
            _write(report, file.name, list(zip(chosen, analyses, strict=True)), top=top, quiet=quiet)


def _chosen(found: "Snapshot", device: int | None, file: Path) -> "list[DeviceSnapshot]":
    """The device asked for, or all of them."""
    if not found.devices:
        raise UsageError(
            "this snapshot is empty: no device holds memory or has a history",
            where=str(file),
            hint="call torch.cuda.memory._record_memory_history() before the work and _dump_snapshot() after it",
        )
    chosen = [one for one in found.devices if device in {None, one.device}]
    if not chosen:
        there = ", ".join(str(one.device) for one in found.devices)
        raise UsageError(f"there is no device {device} in this snapshot", where=str(file), hint=f"it has {there}")
    return chosen


def _write(
    report: outputs.Output,
    name: str,
    found: "Sequence[tuple[DeviceSnapshot, SnapshotAnalysis]]",
    *,
    top: int,
    quiet: bool,
) -> None:
    from memplan.report.snapshot import html
    from memplan.report.snapshot.json import render as render_json
    from memplan.report.snapshot.text import render

    analyses = [analysis for _, analysis in found]
    device, shown = max(found, key=lambda pair: (pair[1].events, pair[1].now.reserved))
    outputs.write_rendered(
        report,
        text=lambda width: render(name, analyses, shown, width=width, top=top, quiet=quiet),
        json=lambda: render_json(name, analyses, shown, top=top),
        html=lambda: html.render(name, device, analyses, shown, top=top),
    )
