"""A pool against a plain model: nothing overlaps, nothing is lost, every byte is accounted for."""

import gc
import random
import threading
from itertools import pairwise

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from memplan.runtime.pools.pool import TensorPool
from memplan.runtime.pools.slabs import SLAB
from memplan.units import MIB

sizes = st.one_of(st.integers(0, 5000), st.sampled_from([MIB - 1, MIB, MIB + 1, 700_000]), st.integers(MIB, 3 * MIB))


class Machine(RuleBasedStateMachine):
    """Takes, returns, drops, moves; each tensor is filled with its own number."""

    handles = Bundle("handles")
    strays = Bundle("strays")

    def __init__(self):
        super().__init__()
        self.pool = TensorPool(max_fragmentation=0.1)
        self.live, self.stray, self.number = {}, {}, 0
        self.peak, self.dropped, self.small, self.number_of_handles = 0, 0, 0, 0

    def fill(self, handle, size):
        self.number = self.number % 250 + 1
        handle.tensor.fill_(self.number)
        self.live[self.number_of_handles] = (handle, size, self.number)
        self.number_of_handles += 1
        self.peak = max(self.peak, self.in_use() + self.pending())
        return self.number_of_handles - 1

    def in_use(self):
        return sum(size for _, size, _ in self.live.values())

    def pending(self):
        return sum(size for size, _, _ in self.stray.values())

    @rule(target=handles, size=sizes)
    def take(self, size):
        return self.fill(self.pool.take(size, torch.uint8), size)

    @rule(target=handles, size=sizes)
    def take_movable(self, size):
        return self.fill(self.pool.movable(size, torch.uint8), size)

    @rule(key=consumes(handles))
    def give_back(self, key):
        self.live.pop(key)[0].give_back()

    @rule(target=strays, key=consumes(handles))
    def give_back_and_keep_a_view(self, key):
        handle, size, number = self.live.pop(key)
        view = handle.tensor.view(-1)
        handle.give_back()
        self.stray[key] = (size, number, view)
        return key

    @rule(key=consumes(strays))
    def drop_the_view(self, key):
        self.stray.pop(key)

    @rule(key=consumes(handles))
    def drop(self, key):
        del self.live[key]
        self.dropped += 1

    @rule()
    def compact(self):
        self.pool.compact()

    @rule(keep=st.integers(0, 4 * MIB))
    def trim(self, keep):
        self.pool.trim(keep)

    @rule()
    def adjust(self):
        self.pool.adjust()

    @invariant()
    def nobody_wrote_over_anybody(self):
        tensors = [(handle.tensor, number) for handle, _, number in self.live.values()]
        tensors += [(view, number) for _, number, view in self.stray.values()]
        assert all(tensor.eq(number).all() for tensor, number in tensors)
        spans = sorted((t.data_ptr(), t.data_ptr() + t.nbytes) for t, _ in tensors if t.numel())
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))

    @invariant()
    def accounts_are_exact(self):
        found = self.pool.statistics()
        parts = found.in_use_bytes + found.wasted_bytes + found.pending_bytes + found.cached_bytes
        assert parts == found.held_bytes
        assert found.in_use_bytes == self.in_use()
        assert found.takes - found.returns == len(self.live)
        assert found.leaks == self.dropped
        assert found.pending_bytes >= self.pending()
        assert (found.pending_bytes == 0) or self.stray
        assert found.peak_in_use_bytes == self.peak
        assert min(found.cached_bytes, found.wasted_bytes, found.evictions) >= 0

    @invariant()
    def what_is_held_is_bounded(self):
        found = self.pool.statistics()
        # Slabs are whole: beyond the share, what small tensors leave of theirs.
        self.small = max(self.small, sum(size <= MIB for _, size, _ in self.live.values()) + len(self.stray))
        assert found.peak_held_bytes <= self.peak / 0.9 + SLAB * (self.small + 1)

    def teardown(self):
        self.live.clear()
        self.stray.clear()
        gc.collect()
        self.pool.close()
        assert self.pool.statistics().held_bytes == 0


Machine.TestCase.settings = settings(deadline=None, max_examples=10, stateful_step_count=30)
TestMachine = Machine.TestCase


def work(pool, seed, operations, errors):
    """One thread's: tensors of all sizes, kept for a while, each with its own number in it."""
    rng, mine = random.Random(seed), []
    try:
        for _ in range(operations // 2):
            size = rng.choice((64, 3000, 70_000, 600_000, MIB + 1, 2 * MIB, rng.randrange(1, 3 * MIB)))
            lease = pool.take(size, torch.uint8)
            number = rng.randrange(256)
            lease.tensor[0], lease.tensor[-1] = number, number
            mine.append((lease, number))
            if len(mine) > 10:
                old, number = mine.pop(rng.randrange(len(mine)))
                if (int(old.tensor[0]), int(old.tensor[-1])) != (number, number):
                    errors.append((seed, number))
                old.give_back()
        for lease, _ in mine:
            lease.give_back()
    except Exception as error:  # noqa: BLE001
        errors.append(error)


@pytest.mark.parametrize("threads", [1, 4])
def test_ten_thousand_operations(threads):
    pool, errors = TensorPool(), []
    workers = [threading.Thread(target=work, args=(pool, n, 10_000 // threads, errors)) for n in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    found = pool.statistics()
    assert not errors
    assert found.takes == found.returns == 5000
    assert (found.in_use_bytes, found.wasted_bytes, found.pending_bytes, found.leaks) == (0, 0, 0, 0)
    pool.trim()
    assert pool.statistics().held_bytes == 0


def test_a_garbage_collection_inside_the_lock_does_no_harm():
    pool = TensorPool()
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(300):
            ring = [pool.take(100)]
            ring.append(ring)
    finally:
        gc.set_threshold(*before)
    del ring
    gc.collect()
    found = pool.statistics()
    assert (found.leaks, found.in_use_bytes) == (300, 0)
