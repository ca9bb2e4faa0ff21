"""The Chrome trace: its format, and that its curves, slices and bars say what the history says."""

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import jsonschema
from hypothesis import given, settings

from memplan.lifetime.records import Category
from memplan.report.history.perfetto import LARGEST, render
from memplan.snapshot.read import load_snapshot
from memplan.snapshot.records import Snapshot
from tests.report.exported import needs_data, real_snapshots, recorded_step, snapshots

COUNT = {"type": "integer", "minimum": 0}
# "Trace Event Format" (Google, 2016): the phases that are used here, and the fields that each must have.
SCHEMA = {
    "type": "object",
    "required": ["traceEvents"],
    "properties": {
        "displayTimeUnit": {"enum": ["ms", "ns"]},
        "traceEvents": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["ph", "name", "pid"],
                "properties": {"ts": COUNT, "dur": COUNT, "pid": COUNT, "tid": COUNT, "name": {"type": "string"}},
                "oneOf": [
                    {"properties": {"ph": {"const": "M"}, "args": {"required": ["name"]}}, "required": ["args"]},
                    {"properties": {"ph": {"const": "X"}}, "required": ["ts", "dur", "tid"]},
                    {
                        "properties": {"ph": {"const": "C"}, "args": {"additionalProperties": COUNT}},
                        "required": ["ts", "args"],
                    },
                    {
                        "properties": {"ph": {"enum": ["b", "e"]}, "id2": {"required": ["local"]}},
                        "required": ["ts", "cat", "id2"],
                    },
                ],
            },
        },
    },
}


def events(snapshot: Snapshot) -> list[dict]:
    content = json.loads(render(snapshot, name="net"))
    found = content["traceEvents"]
    # Thousands of events of a real history are made alike.
    jsonschema.validate(content | {"traceEvents": found[:200] + found[-200:]}, SCHEMA)
    return found


def curve(found: list[dict], name: str) -> list[int]:
    return [event["args"]["bytes"] for event in found if event["ph"] == "C" and event["name"] == name]


def check_nesting(found: list[dict]) -> None:
    """Slices of one row are disjoint or one within the other, and the outer one comes first."""
    open_until: list[int] = []
    last = 0
    for event in found:
        if event["ph"] != "X":
            continue
        assert event["ts"] >= last
        last, end = event["ts"], event["ts"] + event["dur"]
        while open_until and open_until[-1] <= event["ts"]:
            open_until.pop()
        assert not open_until or end <= open_until[-1]
        open_until.append(end)


@settings(max_examples=40)
@given(snapshots)
def test_curves_end_where_the_allocator_does(snapshot: Snapshot) -> None:
    (device,) = snapshot.devices
    found = events(snapshot)
    check_nesting(found)
    assert curve(found, "requested")[-1] == device.layout.requested
    assert curve(found, "reserved")[-1] == device.layout.reserved
    # At every moment the categories add up to the whole: so do their last values.
    assert sum(curve(found, str(category))[-1] for category in Category if curve(found, str(category))) == (
        device.layout.requested
    )


@settings(max_examples=40)
@given(snapshots)
def test_bars_are_the_largest_allocations_from_birth_to_death(snapshot: Snapshot) -> None:
    (device,) = snapshot.devices
    lives, alive = [], {}
    for event in device.events:
        if event.action == "alloc":
            alive[event.address] = event
        elif event.action == "free_completed":
            birth = alive.pop(event.address)
            lives.append((birth.nbytes, birth.microseconds, event.microseconds))
    end = device.events[-1].microseconds + 1
    lives += [(birth.nbytes, birth.microseconds, end) for birth in alive.values()]
    bars = defaultdict(dict)
    for event in events(snapshot):
        if event["ph"] in "be":
            bars[event["id2"]["local"]][event["ph"]] = event
    drawn = sorted((bar["b"]["args"]["bytes"], bar["b"]["ts"], bar["e"]["ts"]) for bar in bars.values())
    assert len(drawn) == min(LARGEST, len(lives))
    assert set(drawn) <= set(lives)
    assert sum(nbytes for nbytes, *_ in drawn) == sum(sorted((nbytes for nbytes, *_ in lives), reverse=True)[:LARGEST])


def test_a_step_shows_phases_and_modules_in_their_order() -> None:
    found = events(recorded_step())
    check_nesting(found)
    slices = [(event["name"], event["ts"], event["ts"] + event["dur"]) for event in found if event["ph"] == "X"]
    phases = [name for name, *_ in slices if name in ("setup", "forward", "backward", "optimizer")]
    assert phases[:4] == ["setup", "forward", "backward", "optimizer"]
    begin, end = next((begin, end) for name, begin, end in slices if name == "forward")
    inside = [name for name, first, last in slices if begin <= first and last <= end]
    assert inside.index("up") < inside.index("down")
    assert "aten.addmm.default" in inside


@real_snapshots
def test_a_real_history_is_drawn(path: Path | None) -> None:
    snapshot = load_snapshot(needs_data(path))
    found = events(snapshot)
    check_nesting(found)
    (device,) = snapshot.devices
    if not device.events:
        return
    assert curve(found, "requested")[-1] == device.layout.requested
    assert curve(found, "reserved")[-1] == device.layout.reserved
    names = {event["name"] for event in found if event["ph"] == "X"}
    assert any(".py:" in name for name in names)
    assert not any("torch::unwind" in name for name in names)


def test_a_history_without_times_counts_events() -> None:
    (device,) = recorded_step().devices
    timeless = tuple(event._replace(microseconds=0) for event in device.events)
    snapshot = Snapshot(devices=(replace(device, events=timeless),), settings={})
    stamps = [event["ts"] for event in events(snapshot) if event["ph"] == "C" and event["name"] == "reserved"]
    assert stamps == sorted(set(stamps))
    assert stamps[-1] < len(timeless)
