"""A pool as its user sees it."""

import errno
import gc
import json
import logging
import mmap
import random

import numpy as np
import psutil
import pytest
import torch

from memplan.errors import UsageError
from memplan.runtime.pools.pool import TensorPool
from memplan.runtime.pools.records import PoolFullError
from memplan.runtime.pools.slabs import SLAB
from memplan.units import MIB

DTYPES = (
    torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.bool, torch.complex64, torch.int64, torch.uint16,
)  # fmt: skip


@pytest.fixture
def pool():
    with TensorPool() as found:
        yield found


def balanced(statistics):
    parts = statistics.in_use_bytes + statistics.wasted_bytes + statistics.pending_bytes + statistics.cached_bytes
    assert parts == statistics.held_bytes
    assert sum(statistics.take_seconds.counts) == statistics.takes == statistics.hits + statistics.misses
    return statistics


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), 0, (0, 3), 5, (3, 5), (1024, 1024)])
def test_what_is_taken_is_like_an_empty_tensor(pool, shape, dtype):
    with pool.take(shape, dtype) as tensor:
        like = torch.empty(shape, dtype=dtype)
        assert (tensor.shape, tensor.dtype, tensor.stride()) == (like.shape, like.dtype, like.stride())
        assert tensor.data_ptr() % 64 == 0 or not tensor.numel()
        assert not tensor.requires_grad
        assert tensor.is_leaf
    del tensor
    statistics = balanced(pool.statistics())
    assert (statistics.in_use_bytes, statistics.pending_bytes) == (0, 0)


def test_memory_is_used_again(pool):
    with pool.take((2, MIB)) as tensor:
        address = tensor.data_ptr()
    del tensor
    with pool.take((MIB, 2)) as tensor:
        assert tensor.data_ptr() == address
    assert (pool.statistics().hits, pool.statistics().misses) == (1, 1)


def test_small_ones_share_a_slab_and_large_ones_do_not(pool):
    with pool.scope() as scope:
        for _ in range(SLAB // MIB):
            scope.take(MIB, torch.uint8)
        assert pool.statistics().held_bytes == SLAB
        scope.take(MIB + 1, torch.uint8)
        assert SLAB + MIB < pool.statistics().held_bytes < 2 * SLAB


def test_everything_comes_back_when_a_scope_fails(pool):
    def fail():
        scope.take(10)
        scope.take(10 * MIB)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), pool.scope() as scope:
        fail()
    assert pool.statistics().in_use_bytes == 0
    with pytest.raises(UsageError, match="not open"):
        scope.take(1)


def test_a_tensor_that_is_still_there_keeps_its_memory(pool):
    with pool.take(4 * MIB, torch.uint8) as tensor:
        view = tensor[5:]
    del tensor
    view.fill_(7)
    with pool.take(4 * MIB, torch.uint8) as other:
        other.zero_()
        assert pool.statistics().pending_bytes == 4 * MIB
    assert view.eq(7).all()
    del view, other
    assert pool.statistics().pending_bytes == 0


def test_so_does_an_array_of_numpy(pool):
    for size in (64, 4 * MIB):
        with pool.take(size, torch.uint8) as tensor:
            array = tensor.numpy()
        del tensor
        array.fill(7)
        for _ in range(3):
            with pool.take(size, torch.uint8) as other:
                other.zero_()
        assert np.all(array == 7)
        del array, other


def test_so_does_a_graph_of_autograd(pool):
    weight = torch.ones(1000, requires_grad=True)
    with pool.take(1000) as tensor:
        loss = (tensor.fill_(3) * weight).sum()
    del tensor
    with pool.take(1000) as tensor:
        tensor.zero_()
    loss.backward()
    assert weight.grad.eq(3).all()


def test_a_graph_does_not_reach_the_next_user(pool):
    weight = torch.ones(1000, requires_grad=True)
    with pool.take(1000) as tensor:
        tensor.fill_(1).mul_(weight)
        assert tensor.requires_grad
    del tensor
    with pool.take(1000) as tensor:
        assert not tensor.requires_grad


def test_a_dropped_handle_is_a_leak_with_its_line(pool):
    lease = pool.take(4 * MIB, torch.uint8)
    assert [site.nbytes for site in pool.taken()] == [4 * MIB]
    del lease
    gc.collect()
    statistics = balanced(pool.statistics())
    assert (statistics.leaks, statistics.returns, statistics.in_use_bytes) == (1, 1, 0)
    (site,) = pool.leaks()
    assert site.where.startswith(__file__)
    assert (site.count, site.nbytes) == (1, 4 * MIB)
    assert pool.taken() == ()


def test_lines_are_those_of_the_user(pool):
    with pool.scope() as scope, pool.movable(8) as movable:
        scope.take(4)
        assert movable.tensor.shape == (8,)
        assert {site.where.rpartition(":")[0] for site in pool.taken()} == {__file__}
        assert {site.nbytes for site in pool.taken()} == {16, 32}


def test_a_handle_is_of_no_use_after_it(pool):
    lease = pool.take(5)
    lease.give_back()
    lease.give_back()
    with pytest.raises(UsageError, match=r"given back[^$]*test_pool\.py"):
        _ = lease.tensor
    movable = pool.movable(5)
    movable.give_back()
    with pytest.raises(UsageError, match="given back"):
        _ = movable.tensor
    assert pool.statistics().returns == 2


def test_a_limit_holds_and_says_who_has_what():
    pool = TensorPool(limit="16MiB")
    with pool.scope() as scope:
        scope.take(12 * MIB, torch.uint8)
        with pytest.raises(PoolFullError, match=r"12\.00 MiB are in use"):
            scope.take(12 * MIB, torch.uint8)
    with pool.take(9 * MIB, torch.uint8):
        assert pool.statistics().held_bytes <= 16 * MIB
    assert pool.statistics().peak_held_bytes <= 16 * MIB
    assert pool.statistics().evictions == 1


def test_what_is_evicted_is_the_systems():
    """Resident memory falls by what a trim says; ``malloc`` would keep some of it."""
    pool, process = TensorPool(), psutil.Process()
    with pool.scope() as scope:
        for _ in range(16):
            scope.take(4 * MIB, torch.uint8).fill_(1)
    before = process.memory_info().rss
    assert pool.trim() == 64 * MIB
    assert before - process.memory_info().rss >= 60 * MIB


def test_cached_memory_goes_where_the_system_has_none(monkeypatch):
    pool = TensorPool(max_fragmentation=0.9)
    with pool.take(4 * MIB, torch.uint8):
        pass
    real, refused = mmap.mmap, []

    def refuse(file, size, **options):
        if len(refused) < 1:
            refused.append(size)
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        return real(file, size, **options)

    monkeypatch.setattr(mmap, "mmap", refuse)
    with pool.take(8 * MIB, torch.uint8):
        assert balanced(pool.statistics()).held_bytes == 8 * MIB
    assert refused


def test_impossible_tensors_take_nothing(pool, monkeypatch):
    with pytest.raises(UsageError, match="-3"):
        pool.take((2, -3))
    monkeypatch.setattr("memplan.runtime.pools.block.tensor_in", None)
    with pytest.raises(TypeError):
        pool.take((2, 3))
    assert balanced(pool.statistics()).in_use_bytes == 0


def test_all_wrong_arguments_are_named_at_once():
    with pytest.raises(UsageError) as caught:
        TensorPool(limit="much", max_fragmentation=1.0, threshold=SLAB + 1)
    assert all(word in caught.value.what for word in ("limit", "max_fragmentation", "threshold"))


def test_buckets_follow_the_sizes(pool):
    sizes = [3 * MIB + 4096 * index for index in range(4)]
    for _ in range(2):
        with pool.scope() as scope:
            for size in sizes:
                scope.take(size, torch.uint8)
    (bucket,) = pool.adjust()
    assert bucket == max(sizes)


def test_buckets_are_fitted_by_themselves():
    pool = TensorPool(max_fragmentation=0.05)
    for index in range(65):
        with pool.take((2 + index % 2 * 7) * MIB + 1, torch.uint8):
            pass
    with pool.take(9 * MIB + 1, torch.uint8):
        assert pool.statistics().wasted_bytes < 9 * MIB / 1000


@pytest.mark.parametrize("share", [0.05, 0.1, 0.3])
def test_fragmentation_stays_within_its_bound(share):
    """Steps of other sizes each; a cache of exact sizes would hold ten times what is ever alive."""
    rng, pool, exact = random.Random(3), TensorPool(max_fragmentation=share), {}
    for _ in range(60):
        length = rng.randrange(100, 1000)
        sizes = [length * width * 1024 for width in (2, 6, 8, length // 50)]
        with pool.scope() as scope:
            for size in sizes:
                scope.take(size, torch.uint8)
        exact |= dict.fromkeys(sizes, 1)
    found = balanced(pool.statistics())
    assert found.peak_held_bytes <= found.peak_in_use_bytes / (1 - share) + SLAB
    assert sum(exact) > 10 * found.peak_in_use_bytes
    assert found.evictions > 0


def test_compaction_gives_slabs_back_and_keeps_values(pool):
    movables = [pool.movable(256 * 1024, torch.uint8) for _ in range(32)]
    for number, movable in enumerate(movables):
        movable.tensor.fill_(number)
    kept = [movable for number, movable in enumerate(movables) if number % 8 < 3]
    for number, movable in enumerate(movables):
        if number % 8 >= 3:
            movable.give_back()
    assert pool.statistics().held_bytes == 4 * SLAB
    used = kept[0].tensor
    address = used.data_ptr()
    assert pool.compact() == 2 * SLAB
    assert [int(movable.tensor[-1]) for movable in kept] == [n for n in range(32) if n % 8 < 3]
    assert kept[0].tensor.data_ptr() == address
    assert balanced(pool.statistics()).in_use_bytes == 12 * 256 * 1024


def test_compaction_by_threshold():
    with TensorPool(compact_at=0.3) as pool:
        movables = [pool.movable(256 * 1024, torch.uint8) for _ in range(32)]
        for number, movable in enumerate(movables):
            movable.tensor.fill_(number)
        for number, movable in enumerate(movables):
            if number % 8 >= 3:
                movable.give_back()
        found = balanced(pool.statistics())
        assert found.compactions >= 1
        assert found.held_bytes == 2 * SLAB
        kept = [movable for number, movable in enumerate(movables) if number % 8 < 3]
        assert [int(movable.tensor[-1]) for movable in kept] == [n for n in range(32) if n % 8 < 3]
        for movable in kept:
            movable.give_back()


def test_a_pool_without_a_threshold_compacts_on_demand_alone(pool):
    movables = [pool.movable(256 * 1024, torch.uint8) for _ in range(32)]
    for movable in movables[1:]:
        movable.give_back()
    assert pool.statistics().held_bytes == 4 * SLAB
    assert pool.statistics().compactions == 0
    movables[0].give_back()


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_a_threshold_of_compaction_is_a_share(share):
    with pytest.raises(UsageError, match="compact_at"):
        TensorPool(compact_at=share)


def test_buckets_sum_up_to_the_pool(pool):
    leases = [pool.take(size, torch.uint8) for size in (100, 100, 3000, 5 * MIB, 6 * MIB, 6 * MIB)]
    leases.pop().give_back()
    leases.append(pool.take(6 * MIB, torch.uint8))
    found = balanced(pool.statistics())
    assert {bucket.upto_bytes: (bucket.hits + bucket.misses, bucket.blocks) for bucket in found.buckets} == {
        128: (2, 2), 4096: (1, 1), 8 * MIB: (4, 3),
    }  # fmt: skip
    assert sum(bucket.hits for bucket in found.buckets) == found.hits
    assert sum(bucket.misses for bucket in found.buckets) == found.misses
    assert sum(bucket.in_use_bytes for bucket in found.buckets) == found.in_use_bytes
    assert sum(bucket.wasted_bytes for bucket in found.buckets) == found.wasted_bytes
    for lease in leases:
        lease.give_back()
    assert all(bucket.in_use_bytes == bucket.blocks == 0 for bucket in pool.statistics().buckets)


def test_a_slab_moves_whole_or_not_at_all(pool):
    movables = [pool.movable(600 * 1024, torch.uint8) for _ in range(6)]
    for number, movable in enumerate(movables):
        movable.tensor.fill_(number)
    movables.pop().give_back()
    addresses = [movable.tensor.data_ptr() for movable in movables]
    assert pool.compact() == 0
    assert [movable.tensor.data_ptr() for movable in movables] == addresses
    assert [int(movable.tensor[-1]) for movable in movables] == list(range(5))
    for movable in movables:
        movable.give_back()
    pool.trim()
    assert pool.statistics().held_bytes == 0


def test_compaction_leaves_what_may_not_move(pool):
    leases = [pool.take(256 * 1024, torch.uint8) for _ in range(32)]
    addresses = [lease.tensor.data_ptr() for lease in leases[::8]]
    for number, lease in enumerate(leases):
        if number % 8:
            lease.give_back()
    assert pool.compact() == 0
    assert [lease.tensor.data_ptr() for lease in leases[::8]] == addresses
    for lease in leases[::8]:
        lease.give_back()


def test_memory_of_a_plan_is_there_before_it_is_asked_for(pool, tmp_path):
    buffers = [
        {"start": 0, "end": 4, "size_bytes": 4 * MIB}, {"start": 1, "end": 3, "size_bytes": 4 * MIB},
        {"start": 2, "end": 5, "size_bytes": 9 * MIB}, {"start": 3, "end": 6, "size_bytes": 2 * MIB},
        {"start": 2, "end": 3, "size_bytes": 100}, {"start": 0, "end": 2, "size_bytes": 3 * MIB},
    ]  # fmt: skip
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"buffers": buffers}))
    pool.prepare(plan)
    assert pool.statistics().held_bytes == 17 * MIB
    with pool.scope() as scope:
        for size in (4, 4, 9):
            scope.take(size * MIB, torch.uint8)
    assert (pool.statistics().hits, pool.statistics().misses) == (3, 0)


def test_a_plan_beyond_the_limit_is_refused_whole():
    pool = TensorPool(limit="16MiB")
    with pytest.raises(PoolFullError, match="plan of"):
        pool.prepare({4 * MIB: 3, 5 * MIB: 1})
    assert pool.statistics().held_bytes == 0
    pool.prepare({4 * MIB: 4})
    assert pool.statistics().held_bytes == 16 * MIB


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("{", "cannot be read"), ("[]", "it: expected an object"), ('{"peak": 3}', "buffers: missing"),
     ('{"buffers": [3]}', r"buffers\[0\]: "),
     ('{"buffers": [{"start": 0, "end": 1, "size_bytes": -1}]}', r"buffers\[0\].size_bytes: ")],
)  # fmt: skip
def test_what_is_no_plan_is_refused(pool, tmp_path, text, complaint):
    plan = tmp_path / "plan.json"
    plan.write_text(text)
    with pytest.raises(UsageError, match=complaint):
        pool.prepare(plan)


def test_closing_gives_everything_back_and_names_the_rest(caplog):
    with caplog.at_level(logging.WARNING, "memplan"), TensorPool() as pool:
        small, large = pool.take(10), pool.take(4 * MIB, torch.uint8)
        with pool.take(8 * MIB, torch.uint8):
            pass
    assert "test_pool.py" in caplog.text
    assert balanced(pool.statistics()).cached_bytes < SLAB
    with pytest.raises(UsageError, match="closed"):
        pool.take(1)
    small.give_back()
    large.give_back()
    assert pool.statistics().held_bytes == 0


def test_trimming_gives_back_what_is_cached(pool):
    for size in (4, 8, 16):
        with pool.take(size * MIB, torch.uint8):
            pass
    held = pool.statistics().held_bytes
    assert pool.trim() == held
    assert pool.statistics().held_bytes == 0


def test_where_the_allocator_of_a_device_caches_nothing_is_kept():
    pool = TensorPool(device="meta", limit=MIB)
    with pool.take((4, 4)) as tensor:
        assert tensor.device.type == "meta"
        assert balanced(pool.statistics()).held_bytes == 64
    assert balanced(pool.statistics()).held_bytes == 0
    with pytest.raises(PoolFullError):
        pool.take(MIB)
