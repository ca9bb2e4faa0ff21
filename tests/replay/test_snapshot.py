"""Snapshots: real ones replayed address by address, damaged and hostile ones refused."""

import io
import os
import pickle
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replay_streams import requests

from memplan.errors import EstimateError, UsageError
from memplan.replay.caching import CachingAllocator
from memplan.replay.history import replay_history
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.records import Request
from memplan.replay.snapshot import load_snapshot
from memplan.replay.validate import validate
from memplan.units import MIB

DATA = Path(os.environ.get("MEMPLAN_DATA", Path(__file__).parents[2].parent / "shared" / "data")) / "snapshots"
real_files = sorted(DATA.glob("*.pickle"))
needs_data = pytest.mark.skipif(not real_files, reason="no research data (MEMPLAN_DATA)")


def event(action, addr, size, stream=0):
    return {"action": action, "addr": addr, "size": size, "stream": stream, "time_us": 1, "frames": []}


def write(folder, content, protocol=4):
    path = folder / "snapshot.pickle"
    path.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content, protocol=protocol))
    return path


def snapshot_of(stream):
    """What PyTorch would write after a stream: history of the second half, state at the end."""
    addresses = []

    def place(nbytes):
        # Downwards with holes, unlike the model's own choice.
        addresses.append((1 << 40) - 1000 * MIB * (len(addresses) + 1))
        opened.append((addresses[-1], nbytes))
        return addresses[-1]

    opened, live, trace = [], {}, []
    allocator = CachingAllocator(AllocatorPolicy(), place=place)
    for index, request in enumerate(stream):
        recorded = index >= len(stream) // 2
        if request.action == "alloc":
            opened.clear()
            block = live[request.key] = allocator.allocate(request.nbytes, request.stream)
            lines = [event("segment_alloc", *segment, request.stream) for segment in opened]
            lines.append(event("alloc", block.address, request.nbytes, request.stream))
        else:
            block = live.pop(request.key)
            lines = [event(name, block.address, block.requested) for name in ("free_requested", "free_completed")]
            allocator.free(block)
        trace += lines if recorded else []
    return {"segments": [written(segment) for segment in allocator.layout().segments], "device_traces": [trace]}


def written(segment):
    return {
        "device": 0,
        "address": segment.address,
        "total_size": segment.size,
        "stream": segment.stream,
        "segment_type": "small" if segment.small else "large",
        "allocated_size": sum(b.size for b in segment.blocks if b.state != "free"),
        "active_size": sum(b.size for b in segment.blocks if b.state != "free"),
        "requested_size": sum(b.requested for b in segment.blocks),
        "is_expandable": False,
        "blocks": [
            {
                "address": b.address,
                "size": b.size,
                "requested_size": b.requested,
                "state": "inactive" if b.state == "free" else "active_allocated",
            }
            for b in segment.blocks
        ],
    }


@needs_data
@pytest.mark.parametrize("path", real_files, ids=lambda path: path.stem)
def test_real_histories_replay_address_by_address(path):
    histories = 0
    for device in load_snapshot(path).devices:
        assert validate(device.layout) == ()
        if device.events:
            result = replay_history(device)
            assert result.first_mismatch == ""
            assert result.allocations_matched == result.allocations > 1000
            assert result.segment_events_matched == result.segment_events
            assert result.final_blocks_matched == result.final_blocks
            assert result.peak_reserved == result.recorded_peak_reserved
            assert result.exact
            histories += 1
    # Two of the files hold a state without a history.
    assert histories == (0 if path.stem.startswith(("Muduard", "albi2")) else 1)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests(max_events=50))
def test_a_history_is_replayed_from_the_state_it_began_with(tmp_path, stream):
    loaded = load_snapshot(write(tmp_path, snapshot_of(stream)))
    for device in loaded.devices:
        assert replay_history(device).exact


@pytest.mark.parametrize(
    ("events", "mismatch"),
    [
        ([("segment_alloc", 0, 40), ("alloc", 0, 30)], "event 1: the model needs a segment of 31457280 bytes"),
        ([("alloc", 0, 30)], "event 0: the model needs a segment of 31457280 bytes"),
        ([("segment_free", 64, 40), ("segment_free", 64, 40)], "event 1: the GPU gave back the segment at"),
        ([("segment_alloc", 0, 20), ("alloc", 2, 4)], f"event 1: 4194304 bytes at {(1 << 40) + 2 * MIB}"),
    ],
)
def test_what_differs_first_is_reported(tmp_path, events, mismatch):
    """Histories that PyTorch's rules cannot produce, in MiB."""
    trace = [event(action, (1 << 40) + start * MIB, size * MIB) for action, start, size in events]
    content = {"segments": [], "device_traces": [trace]}
    result = replay_history(load_snapshot(write(tmp_path, content)).devices[0])
    assert result.first_mismatch.startswith(mismatch)
    assert (result.allocations_matched, result.exact) == (0, False)


events = st.builds(
    event,
    st.sampled_from(["alloc", "free_completed", "segment_alloc", "segment_free", "segment_map", "oom"]),
    st.sampled_from([0, 512, MIB, 2 * MIB, 20 * MIB]),
    st.sampled_from([0, 1, 512, MIB, 2 * MIB, 3 * MIB, 20 * MIB]),
)


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(events, max_size=12), st.booleans())
def test_contradictory_histories_never_crash(tmp_path, trace, with_segment):
    content = {"segments": [written_example()] if with_segment else [], "device_traces": [[], [], [], trace]}
    for device in load_snapshot(write(tmp_path, content)).devices:
        try:
            result = replay_history(device)
        except EstimateError as error:
            assert "contradict" in error.what  # noqa: PT017 - either outcome is right, a crash is not
        else:
            assert result.allocations_matched <= result.allocations


def test_histories_of_expandable_segments_are_refused(tmp_path):
    content = snapshot_of([])
    content["segments"] = [{**written_example(), "is_expandable": True}]
    device = load_snapshot(write(tmp_path, content)).devices[0]
    with pytest.raises(EstimateError, match="expandable"):
        replay_history(device)


def written_example():
    block = {"size": 2 * MIB, "requested_size": 5, "state": "active_pending_free"}
    return {
        "device": 3, "address": 1 << 30, "total_size": 2 * MIB, "stream": 7, "segment_type": "small",
        "active_size": 2 * MIB, "requested_size": 5, "blocks": [block],
    }  # fmt: skip


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_old_files_without_addresses_and_settings(tmp_path, protocol):
    content = {"segments": [written_example()], "device_traces": [[], []]}
    loaded = load_snapshot(write(tmp_path, content, protocol))
    (device,) = loaded.devices
    (segment,) = device.layout.segments
    assert (device.device, segment.stream, segment.small, dict(loaded.settings)) == (3, 7, True, {})
    assert (segment.blocks[0].address, segment.blocks[0].state) == (1 << 30, "pending")
    assert validate(device.layout) == ()


class Attack:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return (os.mkdir, (str(self.marker),))


def persistent():
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer)
    pickler.persistent_id = lambda value: "elsewhere" if value == 1 else None
    pickler.dump([1])
    return buffer.getvalue()


def test_a_hostile_file_runs_nothing(tmp_path):
    marker = tmp_path / "ran"
    content = {"segments": [], "device_traces": [], "allocator_settings": Attack(marker)}
    with pytest.raises(UsageError, match=r"names (posix|nt)"):
        load_snapshot(write(tmp_path, content))
    assert not marker.exists()


def test_a_list_repeated_to_exhaust_memory_is_refused_at_once(tmp_path):
    """4,000 segments that share one list of 4,000 blocks would be 16 million records."""
    block = {"size": 512, "requested_size": 5, "state": "inactive"}
    segment = {**written_example(), "blocks": [block] * 4000}
    content = {"segments": [segment] * 4000, "device_traces": []}
    with pytest.raises(UsageError, match="more entries than bytes"):
        load_snapshot(write(tmp_path, content))


BROKEN = {
    "empty": b"",
    "text": b"this is no pickle at all\n",
    "other protocol": b"\x80\xff.",
    "claims 8 EiB of text": b"\x80\x04\x8d" + struct.pack("<Q", (1 << 63) - 1) + b"x.",
    "no value": b"\x80\x04.",
    "persistent": persistent(),
    "a list": [],
    "no traces": {"segments": []},
    "segments are text": {"segments": "abc", "device_traces": []},
    "a segment is a number": {"segments": [1], "device_traces": []},
    "a segment without blocks": {"segments": [{"device": 0}], "device_traces": []},
    "address is text": {"segments": [{**written_example(), "address": "0x10"}], "device_traces": []},
    "address is true": {"segments": [{**written_example(), "address": True}], "device_traces": []},
    "size is negative": {"segments": [{**written_example(), "total_size": -1}], "device_traces": []},
    "size is beyond all memory": {"segments": [{**written_example(), "total_size": 1 << 70}], "device_traces": []},
    "unknown state": {"segments": [{**written_example(), "blocks": [{"state": "gone"}]}], "device_traces": []},
    "a trace is a dict": {"segments": [], "device_traces": [{}]},
    "an event without address": {"segments": [], "device_traces": [[{"action": "alloc", "size": 1, "stream": 0}]]},
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused_with_a_reason(name, tmp_path):
    path = write(tmp_path, BROKEN[name])
    with pytest.raises(UsageError, match=r"not a CUDA memory snapshot: .") as caught:
        load_snapshot(path)
    assert caught.value.where == str(path)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 400), st.binary(max_size=3))
def test_truncated_and_altered_files_never_crash(tmp_path, cut, insert):
    whole = pickle.dumps({"segments": [written_example()], "device_traces": [[event("alloc", 5, 6)]]}, protocol=4)
    damaged = whole[:cut] + insert + (whole[cut + len(insert) :] if insert else b"")
    try:
        load_snapshot(write(tmp_path, damaged))
    except UsageError as error:
        assert error.where  # noqa: PT017 - either outcome is right, a crash is not


def test_a_missing_file_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="cannot read the snapshot"):
        load_snapshot(tmp_path / "none.pickle")


def test_a_rest_that_was_never_split_off_belongs_to_its_block(tmp_path):
    """19.5 MiB take a segment of 20 MiB whole: that much was allocated when the history began with its free."""
    stream = [Request("alloc", 0, 19 * MIB + MIB // 2, 0), Request("free", 0, 0, 0)]
    (device,) = load_snapshot(write(tmp_path, snapshot_of(stream))).devices
    result = replay_history(device)
    assert [event.action for event in device.events] == ["free_requested", "free_completed"]
    assert (result.peak_allocated, result.exact) == (20 * MIB, True)
