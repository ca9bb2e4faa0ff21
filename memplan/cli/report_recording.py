"""``memplan report`` of a recording: what was measured, alone or over a plan."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memplan.cli import outputs
from memplan.errors import UsageError

if TYPE_CHECKING:
    from memplan.report.profile.plan import PlannedRun
    from memplan.report.profile.records import Overlay
    from memplan.runtime.profile.recording import Recording

FORMATS = (*outputs.REPORTS, "html", *outputs.EXPORTS)
TIMELINE = "memplan estimate … --timeline -f json=FILE writes one"


def write(
    wanted: Sequence[outputs.Output], content: Mapping[str, Any], file: Path, plan_file: Path | None, *, quiet: bool
) -> None:
    """Write all reports of a recording.

    Raises:
        UsageError: A file is not what it should be, or a format is none of recordings.
    """
    from memplan.runtime.profile.recording import read

    unknown = [output.format for output in wanted if output.format not in FORMATS]
    if unknown:
        what = f"--format {unknown[0]} is not for recordings"
        raise UsageError(what, hint=f"recordings have {', '.join(FORMATS)}")
    recording = read(content, str(file))
    overlay = _overlay(recording, str(file), plan_file) if plan_file else None
    for output in wanted:
        _write(output, recording, overlay, quiet=quiet)


def _write(output: outputs.Output, recording: "Recording", overlay: "Overlay | None", *, quiet: bool) -> None:
    from memplan.report.html import profile as page
    from memplan.report.profile import json as profile_json
    from memplan.report.profile import text as profile

    if output.is_export:
        from memplan.snapshot.measured import measured_snapshot

        outputs.write_export(output, measured_snapshot(recording), f"{recording.name} on {recording.device}, measured")
        return
    outputs.write_rendered(
        output,
        text=lambda width: profile.render(recording, overlay, width=width, quiet=quiet),
        json=lambda: profile_json.render(recording, overlay),
        html=lambda: page.render(recording, overlay),
    )


def _overlay(recording: "Recording", where: str, plan_file: Path) -> "Overlay":
    from memplan.report.profile.overlay import overlay

    if recording.events is None:
        what = f"a recording of depth '{recording.depth}' has no events to lay over a plan"
        raise UsageError(what, where=where, hint="record it with memplan.profile(..., depth='full')")
    return overlay(recording, recording.events, _plan(plan_file, recording.device))


def _plan(file: Path, device: str) -> "PlannedRun":
    """The one estimate of a file that is of a recording's kind of device."""
    from memplan.gate.saved import load_content, read_digests, read_entries
    from memplan.report.profile.plan import PlannedRun

    content = load_content(file)
    digests = read_digests(content, str(file))
    entries = {key: entry for key, entry in read_entries(content, str(file)).items() if key in digests}
    if not entries:
        raise UsageError("the plan has no timeline", where=str(file), hint=TIMELINE)
    alike = [key for key in entries if (key[1] == "cpu") == (device == "cpu")]
    if len(alike) != 1:
        found = ", ".join(f"{job} on {gpu}" for job, gpu in entries)
        what = f"the plan has {len(alike)} timelines for {device}: {found}"
        raise UsageError(what, where=str(file), hint=f"one for the same device: {TIMELINE}")
    return PlannedRun(estimate=entries[alike[0]], digest=digests[alike[0]])
