"""A snapshot's history as a step that can be repeated."""

import os
import pickle
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given

from memplan.errors import UsageError
from memplan.replay.caching import CachingAllocator
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.records import Request
from memplan.simulate.from_snapshot import repeated, snapshot_workload
from memplan.simulate.policies import NATIVE, run_policy
from memplan.snapshot.history import replay_history
from memplan.snapshot.read import load_snapshot
from memplan.snapshot.records import DeviceSnapshot, SnapshotEvent
from tests.replay.replay_streams import requests

DATA = Path(os.environ.get("MEMPLAN_DATA", Path(__file__).parents[3] / "shared" / "data")) / "snapshots"


def snapshot_of(before, stream):
    """What a GPU would have written down of two stretches of requests, recording the second only."""
    allocator, live, events = CachingAllocator(AllocatorPolicy()), {}, []
    for recorded, (action, key, nbytes, number) in [(False, r) for r in before] + [(True, r) for r in stream]:
        if action == "alloc":
            block = live[key] = allocator.allocate(nbytes, number)
            event = SnapshotEvent("alloc", block.address, nbytes, number)
        else:
            block = live.pop(key)
            event = SnapshotEvent("free_completed", block.address, block.requested, block.pool.stream)
            allocator.free(block)
        if recorded:
            events.append(event)
    return DeviceSnapshot(device=0, layout=allocator.layout(), events=tuple(events), block_frames={})


def alive_after(stretches):
    alive = {}
    for request in (request for stretch in stretches for request in stretch):
        if request.action == "alloc":
            assert request.key not in alive
            alive[request.key] = request.nbytes, request.stream
        else:
            del alive[request.key]
    return alive


@given(requests(max_events=20), requests(max_events=40, first_key=1000))
def test_a_history_ends_where_it_began(before, stream):
    """Frees of the past are put in at random: the program before leaves blocks that the history may free."""
    left = [r.key for r in before if r.action == "alloc" and not any(o == ("free", r.key, 0, 0) for o in before)]
    stream = stream + [Request("free", key, 0, 0) for key in left[::2]]
    device = snapshot_of(before, stream)
    traced, unmatched = repeated(device)
    start, end = alive_after([traced.set_up]), alive_after(traced.stretches)
    # The same sizes on the same streams, under keys that the next repetition knows.
    assert Counter(start.values()) == Counter(end.values())
    enters, leaves = {old for _, old, _ in traced.carried}, {new for _, _, new in traced.carried}
    assert set(start) - enters == set(end) - leaves
    assert unmatched <= sum(request.action == "free" for request in stream) + len(stream)


def test_a_history_that_closes_by_itself_is_left_alone():
    before = [Request("alloc", 0, 4096, 0)]
    stream = [Request("free", 0, 0, 0), Request("alloc", 1, 4096, 0)]
    traced, unmatched = repeated(snapshot_of(before, stream))
    assert (unmatched, len(traced.step), len(traced.carried)) == (0, 2, 1)


@pytest.mark.parametrize("name", ["cranberrii__memory_snapshot", "wedsonlin_medium_128_inference_memory_snapshot"])
def test_real_histories_repeat_and_the_first_repetition_holds_what_was_recorded(name):
    path = DATA / f"{name}.pickle"
    if not path.exists():
        pytest.skip("no snapshots at hand")
    recorded = replay_history(load_snapshot(path).devices[0])
    run = run_policy(NATIVE[0], snapshot_workload(path, 30))
    assert len(run.steps) == 30
    # Live blocks are those of the GPU; where they lie may differ, as nobody knows in which order the first were made.
    assert run.steps[0].peak_allocated == pytest.approx(recorded.peak_allocated, rel=0.01)
    assert len({step.peak_requested for step in run.steps}) == 1


def test_a_snapshot_without_history_is_refused(tmp_path):
    path = tmp_path / "empty.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [[]]}))
    with pytest.raises(UsageError, match="holds no history"):
        snapshot_workload(path, 3)
