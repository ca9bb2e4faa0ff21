"""The counting allocator: exact against known sizes, and event for event what torch.profiler sees of a real step."""

import gc
import itertools
import random
import threading
from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import memplan
from memplan.errors import MemplanError
from memplan.runtime.arena.arena import record
from memplan.runtime.meters import cpu
from memplan.runtime.meters.records import CpuCounters
from memplan.runtime.profile.counters import CpuAllocationCounters as Looks
from tests.tracing.real_memory import peak, real_allocations


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    if not cpu.can_count():
        pytest.skip("no C++ compiler")


@pytest.fixture
def _counting() -> Iterator[None]:
    gc.collect()
    with cpu.counting():
        yield


def now() -> CpuCounters:
    found = cpu.counters()
    assert found is not None
    return found


@pytest.mark.usefixtures("_counting")
def test_bytes_of_a_tensor_come_and_go() -> None:
    before = now()
    tensor = torch.empty(1000)
    view = tensor[10:]
    held = now()
    del tensor
    still = now()
    del view
    after = now()
    assert held.allocated - before.allocated == still.allocated - before.allocated == 4000
    assert after.allocated == before.allocated
    assert (after.allocations - before.allocations, after.frees - before.frees) == (1, 1)
    assert after.total - before.total == 4000


@pytest.mark.usefixtures("_counting")
def test_one_allocation_of_seventeen_is_timed() -> None:
    before = now()
    for _ in range(170):
        torch.empty(10)
    after = now()
    assert sum(after.nanoseconds) - sum(before.nanoseconds) == 10
    assert after.spent > before.spent


@pytest.mark.usefixtures("_counting")
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.integers(1, 100_000)),
            st.tuples(st.just("free"), st.integers(0, 50)),
            st.sampled_from([("reset", 0), ("look", 0), ("read", 0)]),
        ),
        max_size=60,
    )
)
def test_two_readers_of_the_peak_lose_nothing(moves: list[tuple[str, int]]) -> None:
    """One (a profiler) lets its peak begin anew at every look, the other (a monitor) when it says so."""
    looks = Looks()
    looks.take()
    cpu.reset_peak()
    base = now().allocated
    alive: list[torch.Tensor] = []
    # Every level since the last reset, and since the last look.
    since_reset, since_look = [0], [0]
    for move, number in moves:
        if move == "take":
            alive.append(torch.empty(number, dtype=torch.uint8))
        elif move == "free" and alive:
            del alive[number % len(alive)]
        level = sum(tensor.nbytes for tensor in alive)
        since_reset.append(level)
        since_look.append(level)
        if move == "reset":
            cpu.reset_peak()
            since_reset = [level]
        elif move == "look":
            taken = looks.take()
            assert (taken.allocated - base, taken.peak - base) == (level, max(since_look))
            since_look = [level]
        elif move == "read":
            assert (now().allocated - base, now().peak - base) == (level, max(since_reset))


@pytest.mark.usefixtures("_counting")
@pytest.mark.parametrize("seed", range(3))
def test_thousands_of_blocks_are_found_again(seed: int) -> None:
    before, order = now(), random.Random(seed)
    alive: dict[int, torch.Tensor] = {}
    level = 0
    for index in range(8_000):
        alive[index] = torch.empty(order.randrange(1, 3_000), dtype=torch.uint8)
        level += alive[index].nbytes
        while alive and order.random() < (0.3 if index < 4_000 else 0.6):
            level -= alive.pop(order.choice(list(alive)[:50])).nbytes
    assert now().allocated - before.allocated == level
    alive.clear()
    after = now()
    assert after.allocated == before.allocated
    assert after.frees - before.frees == after.allocations - before.allocations == 8_000
    assert after.sizes == before.sizes


@pytest.mark.usefixtures("_counting")
def test_nothing_is_no_allocation() -> None:
    before = now()
    kept = torch.empty(0)
    assert now().allocations == before.allocations
    del kept


@pytest.mark.usefixtures("_counting")
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(1, 100_000), st.booleans()), max_size=30))
def test_counters_are_sums_over_what_is_alive(wishes: list[tuple[int, bool]]) -> None:
    cpu.reset_peak()
    before, alive, most = now(), 0, 0
    kept: list[torch.Tensor] = []
    for nbytes, keep in wishes:
        tensor = torch.empty(nbytes, dtype=torch.uint8)
        most = max(most, alive + nbytes)
        if keep:
            kept.append(tensor)
            alive += nbytes
        del tensor
    after = now()
    assert after.allocated - before.allocated == alive
    assert after.peak - before.allocated == most
    assert after.total - before.total == sum(nbytes for nbytes, _ in wishes)
    assert after.allocations - before.allocations == len(wishes)
    assert (after.allocations - before.allocations) - (after.frees - before.frees) == len(kept)


@pytest.mark.usefixtures("_counting")
def test_the_history_of_a_real_step_is_the_profilers() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 10))
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(4, 3, 16, 16)

    def step() -> None:
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    gc.collect()
    cpu.reset_peak()
    before = now()
    cpu.start_history(100_000)
    seen = real_allocations(step)
    events, dropped = cpu.end_history()
    assert dropped == 0
    assert len(seen) > 50
    assert [event.nbytes for event in events] == [size for size in seen if size]
    assert now().peak - before.allocated == peak(seen)
    assert all(later.nanoseconds >= event.nanoseconds for event, later in itertools.pairwise(events))


@pytest.mark.usefixtures("_counting")
def test_a_full_history_says_what_it_lost() -> None:
    cpu.start_history(3)
    for _ in range(4):
        torch.empty(8)
    events, dropped = cpu.end_history()
    assert ([event.nbytes for event in events], dropped) == ([32, -32, 32], 5)
    assert cpu.history() == cpu.end_history() == ([], 0)


def test_a_history_has_one_owner() -> None:
    with cpu.counting():
        cpu.start_history(10)
        kept = torch.empty(8)
        with pytest.raises(MemplanError, match="one in a process"):
            cpu.start_history(10)
        with pytest.raises(MemplanError, match="one in a process"), memplan.profile(depth="full"):
            pass
        assert cpu.counters() is not None
        assert [event.nbytes for event in cpu.end_history()[0]] == [kept.nbytes]
        with memplan.profile(depth="full") as run:
            again = torch.empty(4)
    assert run.recording.events is not None
    assert list(run.recording.events.sizes) == [again.nbytes]
    assert not cpu.is_counting()


@pytest.mark.usefixtures("_counting")
def test_threads_count_together() -> None:
    before = now()
    kept: list[list[torch.Tensor]] = [[] for _ in range(4)]

    def work(mine: list[torch.Tensor]) -> None:
        for index in range(500):
            tensor = torch.empty(1 + index % 7, dtype=torch.uint8)
            if index % 5 == 0:
                mine.append(tensor)

    threads = [threading.Thread(target=work, args=(each,)) for each in kept]
    cpu.start_history(10_000)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events, _ = cpu.end_history()
    after = now()
    assert after.allocated - before.allocated == sum(tensor.nbytes for each in kept for tensor in each)
    assert after.allocations - before.allocations == 2000
    assert len({event.thread for event in events}) == 4
    # What one thread took another may give back.
    kept.clear()
    del work
    gc.collect()
    assert now().allocated == before.allocated


def test_counting_nests_and_ends_with_the_last_user() -> None:
    assert cpu.counters() is None
    with cpu.counting():
        with cpu.counting():
            assert cpu.is_counting()
        before = now()
        kept = torch.empty(10)
        assert now().allocated - before.allocated == 40
    assert not cpu.is_counting()
    assert cpu.counters() is None
    del kept  # Given back after the counting, by who took it: no crash.
    cpu.stop_counting()
    assert not cpu.is_counting()


def test_an_arena_and_counting_exclude_each_other() -> None:
    with cpu.counting(), pytest.raises(MemplanError, match="counting of CPU memory is under way"):
        record(lambda: torch.empty(10))

    def counts() -> None:
        with pytest.raises(MemplanError, match="one allocator for the whole process"):
            cpu.start_counting()

    record(counts)
    with cpu.counting():
        assert cpu.is_counting()
