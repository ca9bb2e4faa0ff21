"""The speedscope export: its format, and that its bytes are those of the history."""

import json
import os
from collections import Counter
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given

from memplan.report.history.speedscope import render
from memplan.snapshot.read import load_snapshot
from memplan.snapshot.records import DeviceSnapshot, Snapshot
from tests.report.exported import needs_data, real_snapshots, recorded_step, snapshots

VIEWERS = os.environ.get("MEMPLAN_VIEWERS")
PARAMETERS = (256 * 1024 + 1024 + 1024 * 256 + 256) * 4


def content(snapshot: Snapshot) -> dict:
    return json.loads(render(snapshot, name="net"))


def check(found: dict) -> None:
    """What https://www.speedscope.app/file-format-schema.json asks of sampled profiles, and what it cannot say."""
    assert found["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = found["shared"]["frames"]
    assert all(isinstance(frame["name"], str) and set(frame) <= {"name", "file", "line", "col"} for frame in frames)
    for profile in found["profiles"]:
        assert (profile["type"], profile["unit"]) == ("sampled", "bytes")
        assert len(profile["samples"]) == len(profile["weights"])
        assert profile["startValue"] == 0
        assert profile["endValue"] == sum(profile["weights"])
        assert all(0 <= index < len(frames) for sample in profile["samples"] for index in sample)


def most_requested(device: DeviceSnapshot) -> int:
    total = highest = device.layout.requested
    for event in reversed(device.events):
        total -= event.nbytes * (event.action == "alloc") - event.nbytes * (event.action == "free_completed")
        highest = max(highest, total)
    return highest


@given(snapshots)
def test_both_profiles_weigh_what_the_history_does(snapshot: Snapshot) -> None:
    (device,) = snapshot.devices
    found = content(snapshot)
    check(found)
    at_peak, in_order = found["profiles"]
    assert at_peak["endValue"] == most_requested(device)
    assert in_order["endValue"] == sum(event.nbytes for event in device.events if event.action == "alloc")


def test_a_step_is_split_by_category_then_phase_then_module() -> None:
    found = content(recorded_step())
    check(found)
    at_peak, in_order = found["profiles"]
    frames = [frame["name"] for frame in found["shared"]["frames"]]
    weights: Counter[str] = Counter()
    for sample, weight in zip(at_peak["samples"], at_peak["weights"], strict=True):
        weights[frames[sample[0]]] += weight
    assert weights["parameter"] == PARAMETERS
    levels = [[frames[index] for index in sample] for sample in at_peak["samples"]]
    assert ["parameter", "setup", "up", "up.weight"] in levels
    first = [frames[sample[0]] for sample in in_order["samples"]]
    assert list(dict.fromkeys(first))[:4] == ["setup", "forward", "backward", "optimizer"]


@real_snapshots
def test_a_real_history_weighs_what_it_says(path: Path | None) -> None:
    snapshot = load_snapshot(needs_data(path))
    found = content(snapshot)
    check(found)
    (device,) = snapshot.devices
    at_peak, in_order = found["profiles"]
    # Blocks that were waiting for another stream at the start have no birth and no death in the history.
    assert at_peak["endValue"] == most_requested(device)
    assert in_order["endValue"] == sum(event.nbytes for event in device.events if event.action == "alloc")


@pytest.mark.skipif(not VIEWERS, reason="MEMPLAN_VIEWERS names no folder with speedscope's npm package")
def test_speedscopes_own_schema_accepts_it() -> None:
    path = Path(VIEWERS or "", "node_modules", "speedscope", "dist", "release", "file-format-schema.json")
    jsonschema.validate(content(recorded_step()), json.loads(path.read_text()))
