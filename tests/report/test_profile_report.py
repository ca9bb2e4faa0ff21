"""A recording as text, JSON and export, and the command that writes them."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from syrupy.assertion import SnapshotAssertion

from memplan.cli.app import main
from memplan.report.estimate import json as estimate_json
from memplan.report.history.viewer import render as viewer
from memplan.report.html import profile as page
from memplan.report.profile import json as profile_json
from memplan.report.profile import text as profile
from memplan.report.profile.overlay import overlay
from memplan.runtime.profile.recording import Recording
from memplan.snapshot.analysis import analyse
from memplan.snapshot.measured import measured_snapshot
from memplan.snapshot.policy import recorded_policy
from memplan.snapshot.read import load_snapshot
from tests.contract.goldens import golden, obey
from tests.report.profile_examples import EXAMPLE, PROGRAMS, Event, Program, plan_of, played, recording_of
from tests.runtime.profile.strategies import RECORDINGS

EVENTS = played(EXAMPLE, 3)
RUN = recording_of(EVENTS)
PLAN = plan_of(played(EXAMPLE, 2))
OVERLAY = overlay(RUN, RUN.events, PLAN)


def lines(recording: Recording, **options: Any) -> str:
    return "\n".join(line.plain for line in profile.render(recording, **options))


def test_text_alone(snapshot: SnapshotAssertion) -> None:
    assert lines(replace(RUN, regions=(*RUN.regions, RUN.regions[1]._replace(path=("a" * 90,))))) == snapshot


def test_text_over_a_plan(snapshot: SnapshotAssertion) -> None:
    far = [event._replace(size=4095 if event.size > 0 else -4095) if event.key == 2 else event for event in EVENTS]
    run = recording_of(far)
    assert lines(run, overlay=overlay(run, run.events, PLAN)) == snapshot


def test_quiet_text_is_the_comparison_alone() -> None:
    text = lines(RUN, overlay=OVERLAY, quiet=True)
    assert text.splitlines()[0].split() == ["predicted", "measured", "predicted", "-", "measured"]
    assert "exact" in text
    assert lines(RUN, quiet=True).startswith("  region")


@given(RECORDINGS)
def test_every_recording_has_a_text_of_80_columns_and_a_page(recording: Recording) -> None:
    text = profile.render(recording)
    assert max((line.cell_len for line in text), default=0) <= 80
    if recording.events is not None and min(recording.events.sizes, default=0) < 0:
        return
    assert page.render(recording).startswith("<!DOCTYPE html>")


@settings(max_examples=30, deadline=None)
@given(RECORDINGS)
def test_json_obeys_its_schema(recording: Recording) -> None:
    obey("profile", json.loads(profile_json.render(recording)))


def test_json_with_a_comparison_obeys_it_too_and_the_schema_refuses_less() -> None:
    content = json.loads(profile_json.render(RUN, OVERLAY))
    obey("profile", content)
    assert content["comparison"]["events"] == dict.fromkeys(
        ["predicted", "measured", "matched", "compared"], len(EVENTS)
    )
    for key in golden("profile").schema["required"]:
        with pytest.raises(jsonschema.ValidationError):
            obey("profile", {name: value for name, value in content.items() if name != key})


# ----- as a snapshot


@settings(max_examples=40, deadline=None)
@given(PROGRAMS)
def test_a_snapshot_has_every_event_and_what_is_left(program: Program) -> None:
    events = played(program, 3)
    [device] = measured_snapshot(recording_of(events)).devices
    requests = [
        event.nbytes if event.action == "alloc" else -event.nbytes
        for event in device.events
        if event.action in {"alloc", "free_requested"}
    ]
    assert requests == [event.size for event in events]
    left = {event.key: event.size for event in events if event.size > 0}
    for event in events:
        if event.size < 0:
            del left[event.key]
    assert sorted(block.size for segment in device.layout.segments for block in segment.blocks) == sorted(left.values())
    assert device.layout.allocated == sum(left.values())


def test_events_carry_the_regions_they_fell_into() -> None:
    [device] = measured_snapshot(RUN).devices
    names = ["/".join(frame.function for frame in reversed(event.frames)) for event in device.events]
    assert names[0] == "train"
    assert names[-1] == "train/forward"
    assert list(dict.fromkeys(names)) == ["train", "train/forward"]


def test_a_free_of_what_came_before_is_left_out() -> None:
    [device] = measured_snapshot(recording_of([Event(1, -512, 9), Event(1, 64, 1)])).devices
    assert [event.action for event in device.events] == ["segment_alloc", "alloc"]


def test_its_file_is_read_like_one_of_a_card(tmp_path: Path) -> None:
    (tmp_path / "run.pickle").write_bytes(viewer(measured_snapshot(RUN)))
    [device] = load_snapshot(tmp_path / "run.pickle").devices
    assert device.layout == measured_snapshot(RUN).devices[0].layout


@settings(max_examples=40, deadline=None)
@given(PROGRAMS)
def test_an_analysis_of_it_counts_bytes_as_asked_and_finds_nothing_odd(program: Program) -> None:
    events = played(program, 2)
    found = measured_snapshot(recording_of(events))
    for device in found.devices:
        analysis = analyse(device, recorded_policy(found.settings))
        levels = list(itertools.accumulate((event.size for event in events), initial=0))
        assert analysis.peak.allocated == analysis.reserved_peak.reserved == max(levels)
        assert analysis.now.allocated == levels[-1]
        assert (analysis.replay, analysis.caching, analysis.notes, analysis.fragmented) == (None, False, (), False)
        assert sum(owner.size for owner in analysis.owners) == max(levels)


def test_the_snapshot_command_knows_that_the_cpu_has_no_allocator(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, path = RUN.save(tmp_path / "run.json"), tmp_path / "run.pickle"
    assert main(["report", str(run), "-f", f"snapshot={path}"]) == 0
    capsys.readouterr()
    assert main(["snapshot", str(path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "conf no caching allocator replay none: every block is a segment of its own" in text
    assert "train/forward" in text
    assert "contradicts" not in text
    assert "torch.cuda" not in text
    assert main(["snapshot", str(path), "--json", "--alloc-conf", "expandable_segments:True"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["conf"] == {"text": "", "source": "none"}
    assert (content["replay"]["compared"], content["notes"], content["hints"]) == (False, [], [])
    assert [each["conf"] for each in content["what_if"]] == ["", "expandable_segments:True"]


# ----- the command


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    run = RUN.save(tmp_path / "run.json")
    plan = tmp_path / "plan.json"
    plan.write_text(estimate_json.render([PLAN.estimate], [PLAN.digest]))
    return run, plan


def test_report_writes_every_format(
    files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"json": "c.json", "html": "c.html", "snapshot": "c.pickle", "perfetto": "p.json", "speedscope": "s.json"}
    outputs = [word for name, file in names.items() for word in ("-f", f"{name}={tmp_path / file}")]
    assert main(["report", str(files[0]), "--plan", str(files[1]), "-f", "text", *outputs]) == 0
    assert "100 % the same" in capsys.readouterr().out
    assert all((tmp_path / file).stat().st_size > 100 for file in names.values())
    content = json.loads((tmp_path / "c.json").read_text())
    assert content["comparison"]["largest_deviation"]["bytes"] == 0
    # What report wrote, report reads.
    assert main(["report", str(tmp_path / "c.json"), "-q"]) == 0


@pytest.mark.parametrize(
    ("change", "words", "said"),
    [
        ({}, ["-f", "sarif"], "not for recordings"),
        ({"events": None, "depth": "counters"}, ["--plan"], "no events to lay over a plan"),
        ({"events": None, "depth": "counters"}, ["-f", "perfetto"], "has no events"),
        ({"device": "cuda:0"}, ["--plan"], "0 timelines for cuda:0"),
    ],
)
def test_what_cannot_be_reported_says_why(
    change: dict[str, Any], words: list[str], said: str, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run, plan = files
    replace(RUN, **change).save(run)
    words = [*words, str(plan)] if words == ["--plan"] else words
    assert main(["report", str(run), *words]) == 2
    assert said in capsys.readouterr().err


def test_plans_are_for_recordings_and_need_a_timeline(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run, plan = files
    assert main(["report", str(plan), "--plan", str(plan)]) == 2
    assert "--plan is for recordings" in capsys.readouterr().err
    assert main(["report", str(plan), "-f", "perfetto"]) == 2
    assert "for recordings of memplan.profile" in capsys.readouterr().err
    plan.write_text(estimate_json.render([PLAN.estimate]))
    assert main(["report", str(run), "--plan", str(plan)]) == 2
    error = capsys.readouterr().err
    assert "no timeline" in error
    assert "--timeline" in error
