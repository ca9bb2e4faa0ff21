"""The snapshot export: memplan's own reader, PyTorch's own tools, and the opcodes that its viewer knows."""

import dataclasses
import pickle
import pickletools
from pathlib import Path

import pytest
from hypothesis import given, settings
from torch.cuda import _memory_viz

from memplan.lifetime.records import Category
from memplan.report.history.viewer import render
from memplan.snapshot.read import load_snapshot
from memplan.snapshot.records import Frame, Snapshot, SnapshotEvent
from tests.report.exported import needs_data, real_snapshots, recorded_step, snapshots

# torch/utils/viz/MemoryViz.js `unpickle`.
VIEWER_OPCODES = frozenset(
    "APPEND APPENDS BINFLOAT BINGET BININT BININT1 BININT2 BINPUT BINUNICODE DICT EMPTY_DICT EMPTY_LIST EMPTY_TUPLE"  # noqa: SIM905 - read as a table
    " FRAME LIST LONG1 LONG_BINGET LONG_BINPUT MARK MEMOIZE NEWFALSE NEWTRUE NONE PROTO SETITEM SETITEMS"
    " SHORT_BINUNICODE STOP TUPLE TUPLE1 TUPLE2 TUPLE3".split()
)


def written(snapshot: Snapshot) -> dict:
    return pickle.loads(render(snapshot))


@settings(max_examples=40)
@given(snapshots)
def test_the_reader_gives_back_what_was_written(tmp_path_factory, snapshot: Snapshot) -> None:
    path = tmp_path_factory.mktemp("snapshot") / "memory.pickle"
    path.write_bytes(render(snapshot))
    again = load_snapshot(path)
    assert again.devices == snapshot.devices
    assert again.settings == snapshot.settings


@real_snapshots
def test_a_real_snapshot_survives_being_written_again(path: Path | None, tmp_path: Path) -> None:
    snapshot = load_snapshot(needs_data(path))
    copy = tmp_path / "copy.pickle"
    copy.write_bytes(render(snapshot))
    again = load_snapshot(copy)
    assert again.devices == snapshot.devices
    assert again.settings == snapshot.settings
    ours, theirs = written(snapshot), pickle.loads(needs_data(path).read_bytes())
    for mine, original in zip(ours["segments"], sorted(theirs["segments"], key=lambda s: s["address"]), strict=True):
        for field in ("device", "address", "total_size", "allocated_size", "active_size", "stream", "segment_type"):
            assert mine[field] == original[field]
    assert totals(ours) == totals(theirs)


def totals(content: dict) -> list[str]:
    """What PyTorch's own summary adds up."""
    return [line for line in _memory_viz.segsum(content).splitlines() if line.startswith(("segments:", "total_"))]


@given(snapshots)
def test_only_opcodes_and_integers_that_the_viewer_knows(snapshot: Snapshot) -> None:
    data = render(snapshot)
    assert data[:2] == b"\x80\x04"
    for opcode, argument, _ in pickletools.genops(data):
        assert opcode.name in VIEWER_OPCODES
        assert not isinstance(argument, int) or abs(argument) < 2**53


@settings(max_examples=40)
@given(snapshots)
def test_pytorchs_own_tools_read_it(snapshot: Snapshot) -> None:
    content = written(snapshot)
    (device,) = snapshot.devices
    assert f"total_reserved: {_memory_viz.Bytes(device.layout.reserved)}" in _memory_viz.segsum(content)
    assert _memory_viz.trace(content).count(" = ") >= sum(event.action == "alloc" for event in device.events)
    for page in (_memory_viz.trace_plot(content), _memory_viz.segment_plot(content)):
        assert "MemoryViz.js" in page


def test_pytorchs_flame_graph_sums_to_what_is_allocated() -> None:
    (device,) = recorded_step().devices
    lines = _memory_viz.memory(written(recorded_step()), format_flamegraph=str)
    sizes = [int(line.rpartition(" ")[2]) for line in lines.splitlines()]
    assert sum(sizes) >= device.layout.allocated
    assert any("tensor:0:up.weight" in line for line in lines.splitlines())


def test_every_allocation_has_a_category_and_one_event_is_unknown() -> None:
    events = written(recorded_step())["device_traces"][0]
    categories = {event["category"] for event in events}
    assert "unknown" in categories
    assert categories - {"unknown"} <= set(map(str, Category))
    assert all(event["category"] != "unknown" for event in events if event["action"] == "alloc")


def test_equal_stacks_are_written_once() -> None:
    snapshot = recorded_step()
    (device,) = snapshot.devices
    doubled = dataclasses.replace(device, events=device.events * 2)
    size, twice = len(render(snapshot)), len(render(dataclasses.replace(snapshot, devices=(doubled,))))
    # Another copy of the history costs a few numbers and references for each event.
    assert twice - size < 100 * len(device.events)


def test_a_device_is_found_under_its_index() -> None:
    (device,) = recorded_step().devices
    second = dataclasses.replace(device, device=2)
    content = written(Snapshot(devices=(second,), settings={}))
    assert [len(trace) for trace in content["device_traces"]] == [0, 0, len(device.events)]
    assert {segment["device"] for segment in content["segments"]} == {2}


def test_a_request_that_failed_says_what_was_left() -> None:
    failure = SnapshotEvent("oom", 1 << 20, 1 << 30, 0, (Frame("net.py", 3, "forward"),), 7)
    (device,) = recorded_step().devices
    content = written(Snapshot(devices=(dataclasses.replace(device, events=(failure,)),), settings={}))
    (event,) = content["device_traces"][0]
    assert (event["device_free"], event["size"], "addr" in event) == (1 << 20, 1 << 30, False)


def test_nothing_at_all_is_a_snapshot_too() -> None:
    content = written(Snapshot(devices=(), settings={}))
    assert content["segments"] == []
    assert _memory_viz.segsum(content)


@pytest.mark.parametrize("pool", [(0, 0), (0, 3), (2, 0)])
def test_private_pools_keep_their_pair(pool: tuple[int, int], tmp_path: Path) -> None:
    content = written(recorded_step())
    for segment in content["segments"]:
        segment["segment_pool_id"] = pool
    for event in content["device_traces"][0]:
        event["pool_id"] = pool
    path = tmp_path / "memory.pickle"
    path.write_bytes(pickle.dumps(content))
    assert written(load_snapshot(path))["segments"] == content["segments"]
    assert {event["pool_id"] for event in written(load_snapshot(path))["device_traces"][0]} == {pool}
