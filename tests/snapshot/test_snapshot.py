"""Snapshots: real ones replayed address by address, damaged and hostile ones refused."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memplan.errors import EstimateError
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.records import Request
from memplan.replay.validate import validate
from memplan.snapshot.history import replay_history
from memplan.snapshot.read import load_snapshot
from memplan.units import MIB
from tests.replay.replay_streams import requests
from tests.snapshot.snapshot_files import (
    event,
    expandable_snapshot_of,
    frame,
    needs_data,
    real_files,
    small_program,
    snapshot_of,
    write,
    written_example,
)


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


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests(max_events=50), st.booleans())
def test_private_pools_stay_apart(tmp_path, stream, told):
    """Every third allocation is a captured graph's. New files name the pool in every event, old ones do not."""
    content = snapshot_of(stream, pools=lambda key: int(key % 3 == 1))
    if told:
        blocks = {b["address"]: s["segment_pool_id"] for s in content["segments"] for b in s["blocks"]}
        starts = sorted((s["address"], s["segment_pool_id"]) for s in content["segments"])
        for line in content["device_traces"][0]:
            line["pool_id"] = max((start, pool) for start, pool in starts if start <= line["addr"])[1]
        assert all(pool in {(0, 0), (0, 1)} for pool in blocks.values())
    for device in load_snapshot(write(tmp_path, content)).devices:
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


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(events, max_size=12), st.booleans())
def test_contradictory_histories_never_crash(tmp_path, trace, with_segment):
    content = {"segments": [written_example()] if with_segment else [], "device_traces": [[], [], [], trace]}
    for device in load_snapshot(write(tmp_path, content)).devices:
        try:
            result = replay_history(device)
        except EstimateError as error:
            assert "contradict" in error.what or "mixes" in error.what  # noqa: PT017 - either outcome is right
        else:
            assert result.allocations_matched <= result.allocations


expandable = AllocatorPolicy(expandable_segments=True)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests(max_events=50), st.sets(st.integers(0, 50), max_size=4))
def test_a_history_of_expandable_segments_is_replayed(tmp_path, stream, flushes):
    loaded = load_snapshot(write(tmp_path, expandable_snapshot_of(stream, flushes)))
    for device in loaded.devices:
        result = replay_history(device, policy=expandable)
        assert result.first_mismatch == ""
        assert (result.allocations_matched, result.exact) == (result.allocations, True)
        assert result.segment_events_matched == result.segment_events


def test_what_a_failed_request_mapped_stays(tmp_path):
    """The GPU maps 40 MiB for a request that then fails, flushes, and serves a smaller one."""
    base = 1 << 44
    trace = [
        event("segment_map", base, 40 * MIB),
        event("segment_unmap", base, 40 * MIB),
        event("segment_map", base, 20 * MIB),
        event("alloc", base, 15 * MIB),
    ]
    block = {"address": base, "size": 15 * MIB, "requested_size": 15 * MIB, "state": "active_allocated"}
    rest = {"address": base + 15 * MIB, "size": 5 * MIB, "requested_size": 0, "state": "inactive"}
    segment = {
        **written_example(), "address": base, "total_size": 20 * MIB, "stream": 0, "segment_type": "large", "device": 0,
        "active_size": 15 * MIB, "requested_size": 15 * MIB, "blocks": [block, rest], "is_expandable": True,
    }  # fmt: skip
    (device,) = load_snapshot(write(tmp_path, {"segments": [segment], "device_traces": [trace]})).devices
    result = replay_history(device, policy=expandable)
    assert (result.first_mismatch, result.segment_events_matched, result.exact) == ("", 3, True)
    assert (result.recorded_peak_reserved, result.peak_reserved) == (40 * MIB, 40 * MIB)


def test_fixed_and_expandable_segments_together_are_not_compared(tmp_path):
    content = snapshot_of([Request("alloc", 0, 5, 0), Request("alloc", 1, 5, 0)])
    content["segments"].append({**written_example(), "device": 0, "is_expandable": True})
    device = load_snapshot(write(tmp_path, content)).devices[0]
    with pytest.raises(EstimateError, match="mixes fixed and expandable"):
        replay_history(device)


mappings = st.builds(
    event,
    st.sampled_from(["alloc", "free_completed", "segment_map", "segment_unmap"]),
    st.sampled_from([0, 512, MIB, 2 * MIB, 20 * MIB, 40 * MIB]),
    st.sampled_from([0, 1, 512, MIB, 2 * MIB, 3 * MIB, 20 * MIB]),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(mappings, max_size=12), st.booleans())
def test_contradictory_histories_of_expandable_segments_never_crash(tmp_path, trace, with_segment):
    segments = [{**written_example(), "is_expandable": True}] if with_segment else []
    for device in load_snapshot(write(tmp_path, {"segments": segments, "device_traces": [[], [], [], trace]})).devices:
        try:
            result = replay_history(device, policy=expandable)
        except EstimateError as error:
            assert "contradict" in error.what or "mixes" in error.what  # noqa: PT017 - either outcome is right
        else:
            assert result.allocations_matched <= result.allocations
            assert result.segment_events_matched <= result.segment_events


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_old_files_without_addresses_and_settings(tmp_path, protocol):
    content = {"segments": [written_example()], "device_traces": [[], []]}
    loaded = load_snapshot(write(tmp_path, content, protocol))
    (device,) = loaded.devices
    (segment,) = device.layout.segments
    assert (device.device, segment.stream, segment.small, dict(loaded.settings)) == (3, 7, True, {})
    assert (segment.blocks[0].address, segment.blocks[0].state) == (1 << 30, "pending")
    assert validate(device.layout) == ()


def test_a_rest_that_was_never_split_off_belongs_to_its_block(tmp_path):
    """19.5 MiB take a segment of 20 MiB whole: that much was allocated when the history began with its free."""
    stream = [Request("alloc", 0, 19 * MIB + MIB // 2, 0), Request("free", 0, 0, 0)]
    (device,) = load_snapshot(write(tmp_path, snapshot_of(stream))).devices
    result = replay_history(device)
    assert [event.action for event in device.events] == ["free_requested", "free_completed"]
    assert (result.peak_allocated, result.exact) == (20 * MIB, True)


def test_a_program_with_everything(tmp_path):
    """Frames, times, a failed allocation, memory from before, settings."""
    loaded = load_snapshot(write(tmp_path, small_program()))
    (device,) = loaded.devices
    base = 0x7F0000000000
    assert [(e.action, e.address - base, e.nbytes, e.microseconds) for e in device.events if e.action != "oom"] == [
        ("segment_alloc", 64 * MIB, 20 * MIB, 1_000_000),
        ("alloc", 64 * MIB, 6 * MIB, 1_000_010),
        ("alloc", 70 * MIB, 6 * MIB - 100, 1_000_500),
        ("free_requested", 64 * MIB, 6 * MIB, 1_500_000),
        ("free_completed", 64 * MIB, 6 * MIB, 1_500_000),
        ("alloc", 64 * MIB, 4 * MIB, 1_500_100),
    ]
    assert [e[:4] for e in device.events if e.action == "oom"] == [("oom", 3 * MIB, 30 * MIB, 0)]
    first, *others = device.events
    assert first.frames[2] == ("/home/me/project/net.py", 12, "forward")
    assert first.frames is others[0].frames
    assert set(device.block_frames) == {base + 64 * MIB, base + 70 * MIB}
    assert loaded.settings["expandable_segments"] is False


@given(st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=8), st.booleans())
def test_equal_stacks_are_one_object(tmp_path_factory, stacks, shared):
    frames = [frame(f"{name}.py", 1, "f") for name in "abca"]
    lists = [[frames[index] if shared else dict(frames[index]) for index in stack] for stack in stacks]
    trace = [{**event("alloc", 512, 5), "frames": entries} for entries in lists]
    (path, content) = (tmp_path_factory.mktemp("stacks"), {"segments": [written_example()], "device_traces": [trace]})
    events = [e for device in load_snapshot(write(path, content)).devices for e in device.events]
    assert [[level.file[0] for level in e.frames] for e in events] == [["abca"[i] for i in stack] for stack in stacks]
    assert len({id(e.frames) for e in events}) == len({e.frames for e in events})


def test_the_list_of_segments_alone_is_read(tmp_path):
    """``pickle.dump(torch.cuda.memory_snapshot(), file)``."""
    (device,) = load_snapshot(write(tmp_path, small_program()["segments"])).devices
    assert (device.events, device.layout.reserved, validate(device.layout)) == ((), 22 * MIB, ())


def test_blocks_of_torch_2_0_keep_frames_in_a_history(tmp_path):
    stack = [frame("net.py", 3, "forward")]
    history = [{"addr": 1 << 30, "real_size": 700, "frames": stack}]
    block = {"size": 2 * MIB, "state": "active_allocated", "history": history}
    segment = {**written_example(), "blocks": [block]}
    del segment["requested_size"]
    (device,) = load_snapshot(write(tmp_path, {"segments": [segment]})).devices
    assert (device.layout.requested, device.layout.segments[0].blocks[0].requested) == (700, 700)
    assert device.block_frames == {1 << 30: (("net.py", 3, "forward"),)}
