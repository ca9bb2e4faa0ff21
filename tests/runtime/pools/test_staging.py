"""The ring of staging buffers: on the CPU for real, and through a stand-in for CUDA whose copies end when told to."""

import ctypes
import gc
import threading

import pytest
import torch

from memplan.errors import UsageError
from memplan.runtime.pools.copiers import copier_of
from memplan.runtime.pools.records import PoolFullError
from memplan.runtime.pools.staging import StagingPool


class LateEvent:
    """A copy that is made only when somebody waits for it."""

    def __init__(self, copy):
        self.copy, self.is_done = copy, False

    def query(self):
        return self.is_done

    def synchronize(self):
        if not self.is_done:
            self.is_done = True
            self.copy()


class LateCopier:
    """One stream: a copy waits for those before it, as ``CudaCopier``'s do."""

    device, is_pinned = torch.device("cpu"), True

    def __init__(self):
        self.events, self.hosts = [], set()

    def buffer(self, nbytes):
        found = torch.zeros(nbytes, dtype=torch.uint8)
        self.hosts.add(found.data_ptr())
        return found

    def start(self, target, source):
        """As a card does, remember addresses; only the device's side is kept alive."""
        before, source = list(self.events), source.resolve_conj().contiguous()
        to, origin, nbytes = target.data_ptr(), source.data_ptr(), source.nbytes
        kept = [each for each in (target, source) if each.data_ptr() not in self.hosts]

        def copy():
            for event in before:
                event.synchronize()
            ctypes.memmove(to, origin, nbytes)
            kept.clear()

        self.events.append(LateEvent(copy))
        return self.events[-1]


TENSORS = [
    torch.arange(12.0).reshape(3, 4), torch.arange(12.0).reshape(3, 4).T, torch.tensor(3.5), torch.empty(0, 3),
    torch.arange(6).to(torch.bfloat16), torch.tensor([True, False]), torch.tensor([1 + 2j]).conj(),
]  # fmt: skip


@pytest.mark.parametrize("copier", [None, LateCopier])
@pytest.mark.parametrize("tensor", TENSORS, ids=lambda each: f"{each.dtype}-{tuple(each.shape)}")
def test_what_leaves_comes_back(tensor, copier):
    made = copier() if copier else None
    pool = StagingPool(buffers=1, buffer_bytes=100, device="cpu", copier=made)
    for _ in range(3):
        staged = pool.offload(tensor)
        assert torch.equal(staged.host(), tensor)
        back = staged.bring_back()
        if made:
            made.events[-1].synchronize()
        assert torch.equal(back, tensor)
        assert back.dtype == tensor.dtype
    found = pool.statistics()
    assert (found.out, found.back, found.taken) == (3, 3, 0)
    assert found.out_bytes == found.back_bytes == 3 * tensor.nbytes


def test_a_buffer_waits_for_its_last_copy():
    copier = LateCopier()
    pool = StagingPool(buffers=1, buffer_bytes=64, copier=copier)
    first = pool.offload(torch.full((4,), 1.0)).bring_back()
    assert not copier.events[-1].query()
    pool.offload(torch.full((4,), 2.0)).give_back()
    assert first.eq(1).all()
    assert pool.statistics().waits == 1


def test_a_buffer_whose_copy_is_done_goes_first():
    copier = LateCopier()
    pool = StagingPool(buffers=2, buffer_bytes=64, copier=copier)
    one, two = pool.offload(torch.ones(4)), pool.offload(torch.zeros(4))
    one.give_back()
    two.host()
    two.give_back()
    copier.events[0].is_done = False
    pool.offload(torch.ones(4))
    assert pool.statistics().waits == 0


def test_no_buffer_is_given_to_two():
    pool = StagingPool(buffers=2, buffer_bytes=64, device="cpu")
    one, two = pool.offload(torch.full((4,), 1.0)), pool.offload(torch.full((4,), 2.0))
    with pytest.raises(PoolFullError, match="all 2 buffers"):
        pool.offload(torch.zeros(4))
    assert one.host().eq(1).all()
    assert two.host().eq(2).all()
    assert pool.statistics().taken == 2


def test_a_host_tensor_that_is_still_there_keeps_its_buffer():
    pool = StagingPool(buffers=1, buffer_bytes=64, device="cpu")
    with pool.offload(torch.ones(4)) as staged:
        host = staged.host()
    with pytest.raises(PoolFullError):
        pool.offload(torch.zeros(4))
    assert host.eq(1).all()
    del host
    pool.offload(torch.zeros(4)).give_back()


def test_a_dropped_handle_is_counted_and_its_buffer_used_again():
    pool = StagingPool(buffers=1, buffer_bytes=64, device="cpu")
    staged = pool.offload(torch.ones(4))
    del staged
    gc.collect()
    pool.offload(torch.ones(4)).give_back()
    assert (pool.statistics().leaks, pool.statistics().taken) == (1, 0)


def test_after_it_was_given_back_a_handle_is_of_no_use():
    staged = StagingPool(buffers=1, buffer_bytes=64, device="cpu").offload(torch.ones(4))
    staged.bring_back()
    for use in (staged.host, staged.bring_back):
        with pytest.raises(UsageError, match="given back"):
            use()
    staged.give_back()


def test_what_does_not_fit_is_refused_and_takes_nothing():
    pool = StagingPool(buffers=1, buffer_bytes=16, device="cpu")
    for tensor in (torch.ones(5), torch.eye(2).to_sparse()):
        with pytest.raises(UsageError, match="does not go into a buffer"):
            pool.offload(tensor)
    assert pool.statistics().taken == 0


def test_a_copy_that_fails_gives_its_buffer_back():
    class Broken(LateCopier):
        def start(self, target, source):
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    pool = StagingPool(buffers=1, buffer_bytes=16, copier=Broken())
    for _ in range(3):
        with pytest.raises(RuntimeError, match="illegal"):
            pool.offload(torch.ones(1))
    assert (pool.statistics().taken, pool.statistics().out) == (0, 0)


def test_without_cuda_it_is_pageable_and_says_so(caplog, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with caplog.at_level("INFO", "memplan"):
        pool = StagingPool(buffers=1, buffer_bytes=16)
    assert "pageable" in caplog.text
    assert not pool.statistics().is_pinned
    with pytest.raises(UsageError, match="pinned for cuda"):
        copier_of("cuda:0")
    with pytest.raises(UsageError, match=r"buffers: 0[^$]*buffer_bytes: 0"):
        StagingPool(buffers=0, buffer_bytes=0)


def test_threads_share_a_ring():
    pool, errors = StagingPool(buffers=4, buffer_bytes=4096, device="cpu"), []

    def work(number):
        for turn in range(200):
            tensor = torch.full((1000,), float(number * 1000 + turn))
            if not torch.equal(pool.offload(tensor).bring_back(), tensor):
                errors.append((number, turn))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert (pool.statistics().out, pool.statistics().back, pool.statistics().taken) == (800, 800, 0)


@pytest.mark.gpu
def test_on_a_card():
    pool = StagingPool(buffers=2, buffer_bytes=1 << 20)
    for turn in range(100):
        tensor = torch.full((1 << 18,), float(turn), device="cuda")
        staged = pool.offload(tensor)
        del tensor
        assert staged.bring_back().eq(turn).all()
    assert pool.statistics().is_pinned
