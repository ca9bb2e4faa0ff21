"""A store of items: bit for bit, in memory and on disk, whatever fails."""

import errno
import os
import random
import resource
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from memplan.errors import UsageError
from memplan.runtime.pools.store import spill
from memplan.runtime.pools.store.ahead import ahead
from memplan.runtime.pools.store.records import SpillError
from memplan.runtime.pools.store.store import BufferStore

DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.bool,
    torch.uint8, torch.int64, torch.uint32, torch.complex64, torch.complex128,
)  # fmt: skip


def random_bits(dtype, shape, seed):
    """Any bits: NaNs with payloads, denormals, negative zeros."""
    flat = torch.empty(shape, dtype=dtype).reshape(-1)
    bits = torch.randint(0, 2 if dtype is torch.bool else 256, (flat.nbytes,), generator=seed, dtype=torch.uint8)
    return bits.view(dtype).view(shape)


def bits(tensor):
    return tensor.resolve_conj().contiguous().reshape(-1).view(torch.uint8).tolist()


def same(found, tensor):
    assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
    assert bits(found) == bits(tensor)
    assert found.is_contiguous()
    return True


@pytest.fixture(params=[None, 3], ids=["plain", "compressed"])
def compression(request):
    if request.param is not None:
        pytest.importorskip("zstandard")
    return request.param


@given(
    st.lists(st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 4), max_size=3), st.booleans()), min_size=1),
    st.sampled_from([0, 50, 10_000]), st.sampled_from([None, 1]), st.integers(0, 99),
)  # fmt: skip
def test_every_bit_comes_back(items, limit, level, seed):
    if level is not None:
        pytest.importorskip("zstandard")
    generator = torch.Generator().manual_seed(seed)
    tensors = [random_bits(dtype, shape, generator) for dtype, shape, _ in items]
    tensors = [
        each.mT if each.ndim > 1 and turned else each for each, (_, _, turned) in zip(tensors, items, strict=True)
    ]
    with BufferStore(limit=limit, compression=level) as store:
        store.extend(tensors)
        assert all(same(store[index], tensor) for index, tensor in enumerate(tensors))
        assert all(same(found, tensor) for found, tensor in zip(store, tensors, strict=True))
        statistics = store.statistics()
        assert statistics.memory_bytes <= limit
        assert statistics.tensor_bytes == sum(tensor.nbytes for tensor in tensors)
        if level is None:
            assert statistics.memory_bytes + statistics.disk_bytes == statistics.tensor_bytes


def test_views_of_larger_ones_and_lazy_ones_and_gradients(compression):
    base = torch.arange(24.0).reshape(4, 6)
    lazy = torch.tensor([1 + 2j, 3 - 4j]).conj()
    learned = torch.ones(3, requires_grad=True) * 2
    with BufferStore(limit=0, compression=compression) as store:
        for tensor in (base[1:3, ::2], base.T, base[2], base.expand(2, 4, 6), lazy, lazy.imag):
            store.append(tensor)
            assert torch.equal(store[-1], tensor)
        store.append(learned)
        assert not store[-1].requires_grad


def test_what_is_read_is_a_copy(compression):
    for limit in (0, 1000):
        with BufferStore(limit=limit, compression=compression) as store:
            store.append(torch.ones(5))
            store[0].zero_()
            assert store[0].eq(1).all()


def test_items_have_named_parts(compression):
    item = {
        "state": torch.randn(3, 4),
        "reward": torch.tensor(1.5),
        "done": torch.tensor(False),
        "none": torch.empty(0),
    }
    with BufferStore(limit=100, compression=compression) as store:
        store.extend([item] * 5)
        for found in store:
            assert list(found) == list(item)
            assert all(same(found[name], item[name]) for name in item)


def test_the_oldest_make_room_and_their_files_go(compression, monkeypatch):
    monkeypatch.setattr(spill.Spill.__init__, "__defaults__", (os.pwrite, 1000))
    with BufferStore(limit=500, capacity=10, compression=compression) as store:
        for number in range(300):
            store.append(random_bits(torch.uint8, (97,), torch.Generator().manual_seed(number)))
        assert len(store) == 10
        assert same(store[0], random_bits(torch.uint8, (97,), torch.Generator().manual_seed(290)))
        assert same(store[-10], store[0])
        statistics = store.statistics()
        assert (statistics.appended, statistics.items) == (300, 10)
        assert statistics.spilled > 250
        assert statistics.file_bytes <= 2000
        with pytest.raises(IndexError):
            store.get(10)
        with pytest.raises(IndexError):
            store.get(-11)


def test_compression_saves_what_can_be_saved():
    pytest.importorskip("zstandard")
    with BufferStore(compression=3) as store:
        store.append(torch.zeros(10_000))
        assert store.statistics().memory_bytes < store.statistics().tensor_bytes / 100
        noise = random_bits(torch.uint8, (10_000,), torch.Generator().manual_seed(0))
        store.append(noise)
        assert store.statistics().memory_bytes < 11_000
        assert same(store[1], noise)


def test_a_sample_is_of_the_items():
    with BufferStore() as store:
        with pytest.raises(UsageError, match="empty"):
            store.sample(1)
        store.extend(torch.tensor(number) for number in range(10))
        drawn = [int(each) for each in store.sample(500, torch.Generator().manual_seed(1))]
        assert set(drawn) == set(range(10))
        assert drawn == [int(each) for each in store.sample(500, torch.Generator().manual_seed(1))]


@pytest.mark.parametrize("after", [0, 3, 40])
def test_a_full_disk_loses_nothing(monkeypatch, after):
    left = [after * 100]

    def write(file, view, offset):
        if left[0] <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        # In pieces, as a disk that is nearly full does.
        done = os.pwrite(file, view[: min(60, left[0])], offset)
        left[0] -= done
        return done

    monkeypatch.setattr(spill.Spill.__init__, "__defaults__", (write, 1000))
    with BufferStore(limit=1000) as store:
        kept = 0
        with suppress(SpillError):
            for number in range(100):
                store.append(torch.arange(100, dtype=torch.uint8) + number)
                kept += 1
        assert kept == 10 + after
        for _ in range(3):
            with pytest.raises(SpillError, match="No space left"):
                store.append(torch.zeros(100, dtype=torch.uint8))
        assert all(
            same(each, torch.arange(100, dtype=torch.uint8) + number) for number, each in enumerate(store.iterate())
        )
        assert len(store) == kept
        left[0] = 10_000
        store.append(torch.full((100,), 99, dtype=torch.uint8))
        assert [int(each[0]) for each in store] == [*range(kept), 99]


def test_a_limit_of_the_system_loses_nothing(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with BufferStore(limit=1000, directory=tmp_path) as store:
        store.extend(torch.full((100,), number, dtype=torch.uint8) for number in range(10))
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
        try:
            with pytest.raises(SpillError, match="too large"):
                store.append(torch.zeros(100, dtype=torch.uint8))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, before)
        assert [int(each[0]) for each in store] == list(range(10))


KILLED = """
import sys, torch, time
from memplan.runtime.pools.store.store import BufferStore
store = BufferStore(limit=0, directory=sys.argv[1])
store.append(torch.ones(100000))
print(float(store[0].sum()), flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="files without names are Linux's")
def test_nothing_is_left_after_a_kill(tmp_path):
    with subprocess.Popen([sys.executable, "-c", KILLED, tmp_path], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline().strip() == "100000.0"
        child.kill()
    assert list(tmp_path.iterdir()) == []


def test_an_error_closes_it_and_leaves_nothing(tmp_path):
    def fail():
        store.append(torch.ones(10))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), BufferStore(limit=0, directory=tmp_path) as store:
        fail()
    assert list(tmp_path.iterdir()) == []
    for use in (lambda: store.append(torch.ones(1)), lambda: store.get(0)):
        with pytest.raises(UsageError, match="closed"):
            use()
    store.close()


def test_what_is_being_read_outlives_the_store():
    store = BufferStore(limit=0)
    store.append(torch.full((1000,), 7.0))
    view = store._entries[0].where.read()
    store.close()
    assert torch.frombuffer(bytearray(view), dtype=torch.float32).eq(7).all()


def test_reading_ahead_ends_with_its_user():
    seen, before = [], threading.active_count()

    def read(key):
        seen.append(key)
        return key

    for key in ahead(read, range(1000), 3):
        if key == 5:
            break
    assert threading.active_count() == before
    assert len(seen) <= 5 + 1 + 3 + 2
    assert list(ahead(read, range(20), 1)) == list(range(20))


def test_reading_ahead_is_ahead():
    started = threading.Event()

    def read(key):
        if key == 1:
            started.set()
        return key

    items = ahead(read, range(3), 2)
    assert next(items) == 0
    assert started.wait(10)
    items.close()


def test_an_error_of_the_thread_is_the_users():
    items = ahead(lambda key: 1 // key, [2, 1, 0, 5], 2)
    assert [next(items), next(items)] == [0, 1]
    with pytest.raises(ZeroDivisionError):
        next(items)
    with BufferStore() as store:
        store.append(torch.ones(1))
        with pytest.raises(IndexError):
            list(store.iterate([0, 0, 5]))
        with pytest.raises(UsageError, match="prefetch"):
            store.iterate(prefetch=0)


def test_readers_and_writers_at_once(compression):
    written = threading.Event()

    def write(number):
        for turn in range(400):
            store.append(torch.full((500,), number * 1000 + turn, dtype=torch.int32))

    def read(number):
        rng = random.Random(number)
        while not written.is_set():
            found = store.get(rng.randrange(len(store)))
            assert found.eq(found[0]).all()

    with (
        BufferStore(limit=50_000, capacity=300, compression=compression) as store,
        ThreadPoolExecutor(4) as threads,
    ):
        store.append(torch.zeros(500, dtype=torch.int32))
        readers = [threads.submit(read, number) for number in (1, 2)]
        writers = [threads.submit(write, number) for number in (1, 2)]
        try:
            for writer in writers:
                writer.result()
        finally:
            written.set()
        for reader in readers:
            reader.result()
        statistics = store.statistics()
        assert (statistics.items, statistics.appended) == (300, 801)
        assert statistics.tensor_bytes == 300 * 2000
        assert statistics.memory_bytes <= 50_000
        last = [int(each[0]) for each in store]
        for number in (1, 2):
            mine = [value for value in last if value // 1000 == number]
            assert mine == sorted(mine)


@pytest.mark.parametrize(
    "item", [3, "text", torch.eye(2).to_sparse(), torch.empty(2, device="meta"), {"a": [1.0]}], ids=str
)
def test_what_has_no_plain_memory_is_refused(item):
    with BufferStore() as store:
        with pytest.raises(UsageError):
            store.append(item)
        assert len(store) == 0


def test_all_wrong_arguments_are_named_at_once(tmp_path):
    with pytest.raises(UsageError) as caught:
        BufferStore(limit="much", capacity=0, directory=tmp_path / "nowhere")
    assert all(word in caught.value.what for word in ("limit", "capacity", "directory"))


def test_compression_without_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(UsageError, match="zstandard") as caught:
        BufferStore(compression=3)
    assert "memplan[runtime]" in caught.value.hint


def test_a_level_that_there_is_not():
    pytest.importorskip("zstandard")
    with pytest.raises(UsageError, match="no such level"):
        BufferStore(compression=99)
