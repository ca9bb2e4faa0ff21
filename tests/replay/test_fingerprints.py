"""States with one fingerprint have one future: every short past that leads to a state seen before, with all futures."""

import pytest

from memplan.errors import MemplanError
from memplan.replay.allocator import make_allocator
from memplan.replay.policy import AllocatorPolicy, PinnedPolicy
from memplan.replay.records import Request
from memplan.replay.replay import replay_steps
from memplan.units import MIB, Bytes


class World:
    """An allocator on a device with room for three blocks, and its live blocks, oldest first."""

    def __init__(self, policy):
        self.allocator = make_allocator(policy, limit_bytes=96 * MIB)
        self.live = []

    def alloc(self, stream):
        block = self.allocator.allocate(30 * MIB, stream)
        if block is not None:
            self.live.append(block)

    def do(self, word):
        """What came of one word: totals, or the complaint; None where it makes no sense."""
        action, _, number = word.partition(":")
        if action == "alloc":
            self.alloc(int(number))
        elif action in {"free", "use"} and not self.live:
            return None
        elif action == "free":
            self.allocator.free(self.live.pop())
        elif action == "use":
            self.allocator.perform(Request("record_stream", 0, 0, int(number)), self.live[-1])
        else:
            stream, key = (int(number), 0) if action == "synchronize" else (0, int(number))
            try:
                self.allocator.perform(Request(action, key, 0, stream), None)
            except MemplanError as error:
                return error.what
        allocator = self.allocator
        return allocator.requested, allocator.allocated, allocator.pending, allocator.reserved, allocator.segments

    def all(self, words):
        return [self.do(word) for word in words]

    def fingerprint(self):
        return self.allocator.fingerprint(dict(enumerate(self.live)))


ALPHABET = ["alloc:0", "alloc:1", "free", "use:1", "synchronize:1"]
ALPHABET += ["pool_begin:1", "pool_end:1", "pool_release:1", "empty_cache:0"]
FUTURES = [
    future.split()
    for future in (
        "alloc:0 alloc:0 alloc:0 alloc:0",
        "alloc:1 alloc:0 alloc:0",
        "free alloc:0 alloc:0",
        "free free alloc:1 alloc:1",
        "synchronize:1 alloc:0 alloc:0 alloc:0",
        "alloc:1 free free alloc:0 alloc:0",
        "use:1 free pool_end:1 alloc:0",
        "pool_begin:1 alloc:0 free alloc:1",
        "pool_begin:2 alloc:0 pool_end:1 alloc:0 alloc:0",
        "pool_end:1 alloc:0 synchronize:1 alloc:0",
        "pool_release:1 empty_cache:0 alloc:0 alloc:0",
        "pool_end:1 pool_release:1 empty_cache:1 pool_begin:1 alloc:0",
        "empty_cache:0 alloc:0",
    )
]
POLICIES = [
    (AllocatorPolicy(), 4),
    (AllocatorPolicy(expandable_segments=True), 4),
    # Without pools there are fewer states, and they lie deeper.
    (PinnedPolicy(), 6),
    (PinnedPolicy(reserve_segment_size=Bytes(32 * MIB)), 6),
]


@pytest.mark.parametrize(("policy", "depth"), POLICIES, ids=["native", "expandable", "pinned", "pinned with reserve"])
def test_one_fingerprint_has_one_future(policy, depth):
    futures_of = {}
    newest, revisits = [()], 0
    for _ in range(depth):
        pasts = [(*past, word) for past in newest for word in ALPHABET]
        newest = []
        for past in pasts:
            world = World(policy)
            if None in world.all(past):
                continue
            futures = [after(policy, past).all(future) for future in FUTURES]
            state = world.fingerprint()
            if state in futures_of:
                revisits += 1
                assert futures == futures_of[state], past
            else:
                futures_of[state] = futures
                newest.append(past)
    assert len(futures_of) > 50
    assert revisits > 50


def after(policy, past):
    world = World(policy)
    world.all(past)
    return world


def test_ages_that_garbage_collection_never_asks_for_do_not_keep_a_state_from_repeating():
    """Free small blocks, and parts of segments, are as good as new however long they have been free."""
    policy = AllocatorPolicy(per_process_memory_fraction=0.9, garbage_collection_threshold=0.9)
    prefix = [Request("alloc", 0, 3 * MIB, 0), Request("alloc", 1, 512, 0)]
    step = [
        Request("alloc", 2, 512, 0),
        Request("alloc", 3, 4 * MIB, 0),
        Request("free", 3, 0, 0),
        Request("free", 2, 0, 0),
    ]
    profile = replay_steps(prefix, step, {}, policy=policy, limit_bytes=400 * MIB)
    assert (profile.settled, profile.steps_replayed) == (True, 1)
