"""Binding this process and its memory, for real where the system allows it, and what is said where it does not."""

import errno
import gc
import mmap
import os
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader

from memplan.errors import UsageError
from memplan.runtime.numa import pinned, syscalls
from memplan.runtime.numa.binding import WorkerBinding, bind, my_placement
from memplan.runtime.numa.pinned import pinned_empty
from memplan.runtime.numa.placement import Demand, RankPlacement
from memplan.runtime.numa.plan import place
from memplan.runtime.numa.topology import this_machine
from memplan.seam import memory


def may(call: str) -> bool:
    try:
        if call == "set_mempolicy":
            syscalls.set_policy(syscalls.DEFAULT)
        else:
            syscalls.nodes_of_pages(id(call), 1)
    except OSError:
        return False
    return True


needs_policy = pytest.mark.skipif(not may("set_mempolicy"), reason="this system forbids memory policies")
needs_pages = pytest.mark.skipif(not may("move_pages"), reason="this system does not tell where pages lie")
NODE = this_machine().nodes[0].index


@pytest.fixture
def rank() -> RankPlacement:
    topology = this_machine()
    if len(topology.allowed_cpus) < 2:
        pytest.skip("one CPU")
    return place(topology, Demand(ranks=2, workers=1)).ranks[1]


@pytest.fixture
def affinity() -> Iterator[set[int]]:
    before, put_back = os.sched_getaffinity(0), os.sched_setaffinity
    yield before
    put_back(0, before)


def refuse(*_: object, **__: object) -> None:
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


@needs_policy
def test_a_process_is_bound_and_let_go(rank: RankPlacement, affinity: set[int]) -> None:
    with bind(rank) as bound:
        assert os.sched_getaffinity(0) == set(rank.cpus) == set(bound.cpus)
        assert (bound.policy, bound.reasons) == (f"preferred {rank.memory_node}", ())
        status = Path("/proc/self/numa_maps").read_text() if Path("/proc/self/numa_maps").exists() else "prefer"
        assert "prefer" in status
    assert os.sched_getaffinity(0) == affinity
    assert syscalls.get_policy() == (syscalls.DEFAULT, ())


@needs_policy
def test_strict_memory(rank: RankPlacement, affinity: set[int]) -> None:
    with bind(rank, strict=True) as bound:
        assert bound.policy == f"bind {rank.memory_node}"


def test_threads_that_run_already_are_moved_along(rank: RankPlacement, affinity: set[int]) -> None:
    free, own, ended = threading.Event(), threading.Event(), threading.Event()
    seen: dict[str, set[int]] = {}

    def run(name: str, ready: threading.Event, cpus: set[int] | None) -> None:
        if cpus:
            os.sched_setaffinity(0, cpus)
        ready.set()
        ended.wait(20)
        seen[name] = os.sched_getaffinity(0)

    first = {min(affinity)}
    threads = [threading.Thread(target=run, args=words) for words in (("free", free, None), ("own", own, first))]
    for thread in threads:
        thread.start()
    free.wait(20)
    own.wait(20)
    with bind(rank):
        ended.set()
        for thread in threads:
            thread.join()
    assert seen == {"free": set(rank.cpus), "own": first}


def test_what_is_refused_is_told(rank: RankPlacement, affinity: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    monkeypatch.setattr(syscalls, "_call", refuse)
    with bind(rank) as bound:
        assert bound.reasons == ("CPUs: [Errno 1] Operation not permitted", "memory policy: Operation not permitted")
        assert (bound.threads, bound.policy) == (0, "default")
        assert set(bound.cpus) == affinity


def test_an_unknown_processor_has_no_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syscalls.platform, "machine", lambda: "riscv64")
    with pytest.raises(OSError, match=r"mempolicy is not known on Linux riscv64"):
        syscalls.get_policy()


def test_my_placement_is_that_of_my_rank(monkeypatch: pytest.MonkeyPatch, rank: RankPlacement) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert my_placement(workers=1) == rank
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(UsageError, match="LOCAL_RANK is '2' and LOCAL_WORLD_SIZE '2'"):
        my_placement()


class Affinities(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        return sum(1 << cpu for cpu in os.sched_getaffinity(0))


def test_workers_are_bound(rank: RankPlacement) -> None:
    binding = pickle.loads(pickle.dumps(WorkerBinding(workers=rank.workers)))
    found = list(DataLoader(Affinities(), batch_size=None, num_workers=1, worker_init_fn=binding))
    assert found == [sum(1 << cpu for cpu in rank.workers[0])] * 2


@needs_policy
@needs_pages
@pytest.mark.parametrize("shape", [(1,), (3, 5), (1 << 20,), (1000, 1001)])
def test_pages_lie_on_the_node(shape: tuple[int, ...]) -> None:
    had = pinned_empty(shape, dtype=torch.float64, node=NODE)
    assert had.tensor.shape == shape
    assert had.tensor.eq(0).all()
    assert (had.bound, had.share) == (True, 1.0)
    assert had.tensor.data_ptr() % mmap.PAGESIZE == 0
    had.tensor.fill_(3)
    assert had.tensor.sum() == 3 * had.tensor.numel()


@needs_policy
def test_the_kernel_says_the_same() -> None:
    """``numa_maps`` is another way to the same fact, and knows the policy as well."""
    had = pinned_empty((1 << 18,), node=NODE)
    address = had.tensor.data_ptr()
    lines = [line for line in Path("/proc/self/numa_maps").read_text().splitlines() if line.startswith(f"{address:x} ")]
    if not lines:
        pytest.skip("merged with a neighbour")
    assert f"bind:{NODE}" in lines[0]
    assert f"N{NODE}=256" in lines[0] or f"N{NODE}=" in lines[0]


def test_memory_comes_back_when_nothing_refers_to_it() -> None:
    def is_mapped(address: int) -> bool:
        ranges = (line.split(maxsplit=1)[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines())
        return any(int(start, 16) <= address < int(end, 16) for start, end in ranges)

    size = 64 << 20
    view = pinned_empty((size,), dtype=torch.uint8, node=NODE).tensor[5:]
    gc.collect()
    assert view.sum() == 0
    middle = view.data_ptr() + size // 2
    assert is_mapped(middle)
    del view
    gc.collect()
    assert not is_mapped(middle)


def test_memory_is_touched_first_by_a_thread_on_the_nodes_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    real, asked = os.sched_setaffinity, []

    def note(thread: int, cpus: set[int]) -> None:
        asked.append((threading.current_thread() is threading.main_thread(), thread, cpus))
        real(thread, cpus)

    monkeypatch.setattr(os, "sched_setaffinity", note)
    pinned_empty((1000,), node=NODE)
    assert asked == [(False, 0, set(this_machine().nodes[0].cpus))]


def test_without_permission_memory_is_touched_on_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syscalls, "_call", refuse)
    had = pinned_empty((1 << 16,), node=NODE)
    assert (had.bound, had.share) == (False, None)
    assert had.reasons[0] == f"not bound to node {NODE}, only touched there first: Operation not permitted"
    assert had.reasons[-1] == "where the pages lie is not told: Operation not permitted"
    assert had.tensor.eq(0).all()


class Runtime:
    """What ``torch.cuda.cudart()`` answers; registering memory that is registered is error 712."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.held: dict[int, int] = {}
        self.waited: set[int] = set()

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:  # noqa: N802 - CUDA's name.
        self.held |= {} if self.code else {address: size}
        return self.code

    def synchronize(self, device: int) -> None:
        assert device == 0
        self.waited = set(self.held)

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802 - CUDA's name.
        assert address in self.waited  # A copy that nobody waits for may still read or write the memory.
        assert os.path.exists(f"/proc/{os.getpid()}")  # noqa: PTH110 - the process lives; so must the mapping.
        syscalls_told.append(mapped(address))
        del self.held[address]
        return 0


syscalls_told: list[bool] = []


def mapped(address: int) -> bool:
    spans = [line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines()]
    return any(int(start, 16) <= address < int(end, 16) for start, end in spans)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    runtime = Runtime()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    monkeypatch.setattr(torch.cuda, "synchronize", runtime.synchronize)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(memory, "cuda_hasPrimaryContext", None)
    return runtime


def test_memory_is_page_locked_and_released_before_it_is_unmapped(cuda: Runtime) -> None:
    syscalls_told.clear()
    had = pinned_empty((1000,), node=NODE)
    assert had.registered
    assert cuda.held == {had.tensor.data_ptr(): mmap.PAGESIZE}
    kept = had.tensor[10:20]
    del had
    gc.collect()
    assert cuda.held
    del kept
    gc.collect()
    assert cuda.held == {}
    assert syscalls_told == [True]


def test_memory_that_cannot_be_page_locked(cuda: Runtime) -> None:
    cuda.code = 2
    had = pinned_empty((1000,), node=NODE)
    assert not had.registered
    assert "not page-locked: cudaHostRegister answers 2" in had.reasons


def test_nothing_and_nonsense() -> None:
    assert pinned_empty((0, 3), node=NODE).tensor.shape == (0, 3)
    assert pinned_empty((2, 3)).share is None
    with pytest.raises(UsageError, match="shape"):
        pinned_empty((-1,))
    with pytest.raises(UsageError, match="there is no node 999"):
        pinned_empty((1,), node=999)


def test_more_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(pinned, "_Region", full)
    with pytest.raises(MemoryError, match="400 B of host memory: Cannot allocate memory"):
        pinned_empty((100,))


def test_a_system_without_private_mappings_has_plain_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned, "mmap", SimpleNamespace(mmap=object))
    had = pinned_empty((3,), node=NODE)
    assert (had.tensor.tolist(), had.registered, had.reasons) == (
        [0, 0, 0],
        False,
        ("this system has no private mappings",),
    )
