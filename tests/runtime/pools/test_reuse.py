"""Memory that is used again: at hand for the next request of its size, or its pages in another block."""

import mmap
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from memplan.runtime.pools import memory
from memplan.runtime.pools.fresh import MOST, Fresh
from memplan.runtime.pools.pool import TensorPool
from memplan.units import MIB


@dataclass(eq=False)
class Returned:
    requested: int


@given(st.lists(st.one_of(st.integers(1, 3), st.just(-1), st.just(-2), st.integers(-13, -11))))
def test_the_last_of_a_size_goes_first(operations):
    """Positive: put one of that size. -11 to -13: take one. -1: clear all. -2: clear up to 2 bytes."""
    fresh, model = Fresh(), []
    for operation in operations:
        if operation > 0:
            model.append(Returned(operation))
            assert fresh.put(model[-1])
        elif operation < -10:
            expected = next((each for each in reversed(model) if each.requested == -operation - 10), None)
            assert fresh.take(-operation - 10) is expected
            model = [each for each in model if each is not expected]
        else:
            most = None if operation == -1 else 2
            gone = {each for each in model if most is None or each.requested <= most}
            assert set(fresh.clear(most)) == gone
            model = [each for each in model if each not in gone]


def test_it_says_when_it_is_full():
    fresh = Fresh()
    assert [fresh.put(Returned(number)) for number in range(MOST)] == [True] * (MOST - 1) + [False]
    assert len(list(fresh.clear())) == MOST
    assert fresh.put(Returned(1))


def test_any_number_of_sizes_come_back():
    with TensorPool() as pool:
        with pool.scope() as scope:
            for size in range(1, 3 * MOST):
                scope.take(size, torch.uint8)
        found = pool.statistics()
        assert (found.in_use_bytes, found.returns) == (0, 3 * MOST - 1)
        assert pool.trim() == found.held_bytes == found.cached_bytes


def test_small_blocks_at_hand_make_room_for_other_sizes():
    with TensorPool() as pool:
        for size in (MIB, MIB // 2, MIB // 4, 100):
            with pool.scope() as scope:
                for _ in range(2 * MIB // size if size > 100 else 1):
                    scope.take(size, torch.uint8)
            assert pool.statistics().held_bytes == 2 * MIB


@pytest.mark.parametrize("small", [True, False])
def test_steps_that_repeat_ask_for_no_more_memory(small):
    """A step's slabs are not given up at its end to be mapped anew in the next."""
    sizes = [540_672] * 12 + [61_952] * 12 + ([] if small else [2_162_688] * 12 + [5_632_000])
    with TensorPool() as pool:
        for _ in range(3):
            with pool.scope() as scope:
                for size in sizes:
                    scope.take(size, torch.uint8)
            with pool.take(600_000, torch.uint8):
                pass
        before = pool.statistics().misses
        for _ in range(3):
            with pool.scope() as scope:
                for size in sizes:
                    scope.take(size, torch.uint8)
            with pool.take(600_000, torch.uint8):
                pass
        assert pool.statistics().misses == before


def test_a_tensor_is_nobody_elses():
    """What is done to one, its version, gradient and shape, is not seen in the next of the same memory."""
    with TensorPool() as pool:
        with pool.take((4, 4)) as tensor:
            address = tensor.data_ptr()
            tensor.requires_grad_()
            (tensor * 2).sum().backward()
            tensor.label = "mine"
            tensor.data = tensor.data.reshape(16)
        del tensor
        with pool.take((4, 4)) as tensor:
            assert tensor.data_ptr() == address
            assert (tensor.shape, tensor.requires_grad, tensor.grad, tensor._version) == ((4, 4), False, None, 0)
            assert not hasattr(tensor, "label")
            assert not tensor._is_view()
        del tensor
        with pool.take((2, 8), torch.int32) as other:
            assert (other.data_ptr(), other.shape, other.dtype) == (address, (2, 8), torch.int32)


def test_memory_that_was_first_used_without_autograd_is_fit_for_it():
    weight = torch.ones(4, requires_grad=True)
    with TensorPool() as pool:
        with torch.inference_mode(), pool.take(4) as tensor:
            tensor.fill_(2)
        del tensor
        with pool.take(4) as tensor:
            (tensor.fill_(3) * weight).sum().backward()
    assert weight.grad.eq(3).all()


def evicting(pool):
    """A request for which a block of another size must go."""
    with pool.take(16 * MIB, torch.uint8) as tensor:
        tensor.fill_(7)
    del tensor
    with pool.take(17 * MIB + 5, torch.uint8) as tensor:
        tensor[16 * MIB :].fill_(8)
        return tensor[0].item(), tensor[-1].item(), pool.statistics()


@pytest.mark.skipif(not hasattr(mmap, "MAP_PRIVATE") or not Path("/proc").is_dir(), reason="mremap is Linux's")
def test_pages_of_an_evicted_block_go_into_the_next():
    first, last, found = evicting(TensorPool(max_fragmentation=0.0))
    assert (first, last) == (7, 8)
    assert (found.misses, found.evictions) == (2, 1)
    assert found.held_bytes == found.peak_held_bytes < 18 * MIB


@pytest.mark.parametrize("error", [SystemError, ValueError, OSError, BufferError])
def test_where_pages_cannot_be_moved_new_ones_are_mapped(monkeypatch, error):
    class Fixed(mmap.mmap):
        def resize(self, size):
            raise error

    monkeypatch.setattr(mmap, "mmap", Fixed)
    first, last, found = evicting(TensorPool(max_fragmentation=0.0))
    assert (first, last) == (0, 8)
    assert (found.misses, found.evictions) == (2, 1)


def test_a_kernel_without_huge_pages_does(monkeypatch):
    class Small(mmap.mmap):
        def madvise(self, *_):
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr(mmap, "mmap", Small)
    with TensorPool() as pool, pool.take(memory.HUGE_PAGE, torch.uint8) as tensor:
        assert tensor.fill_(1).eq(1).all()


@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage/enabled").exists()
    or "[never]" in Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text(),
    reason="no transparent huge pages",
)
def test_large_blocks_ask_for_huge_pages():
    with TensorPool() as pool, pool.take(64 * MIB, torch.uint8) as tensor:
        address = tensor.data_ptr()
        flags, within = "", False
        for line in Path("/proc/self/smaps").read_text().splitlines():
            if "-" in line.split()[0]:
                start, end = (int(part, 16) for part in line.split()[0].split("-"))
                within = start <= address < end
            elif within and line.startswith("VmFlags"):
                flags = line
        assert "hg" in flags.split()
