"""The books of a recording against a model that remembers every level of every moment and adds nothing up."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from memplan.runtime.profile import ledger as module
from memplan.runtime.profile.ledger import CounterReading, RegionLedger

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("alloc"), st.integers(0, 2), st.integers(1, 1000)),
        st.tuples(st.just("free"), st.integers(0, 2), st.integers(0, 10)),
        st.tuples(st.just("enter"), st.integers(0, 2), st.sampled_from("abc")),
        st.tuples(st.just("leave"), st.integers(0, 2), st.integers(0, 3)),
        st.tuples(st.just("sample"), st.just(0), st.just(0)),
    ),
    max_size=80,
)
"""What threads 0 to 2 do; a ``leave`` ends the innermost region, or one further out."""


class Allocator:
    """Counts as a real one does: one peak for all, which begins anew when somebody looks."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.level = self.peak = self.total = self.allocations = 0

    def allocate(self, size: int) -> None:
        self.sizes.append(size)
        self.level += size
        self.total += size
        self.allocations += 1
        self.peak = max(self.peak, self.level)

    def free(self, which: int) -> None:
        if self.sizes:
            self.level -= self.sizes.pop(which % len(self.sizes))

    def take(self) -> CounterReading:
        peak, self.peak = self.peak, self.level
        return CounterReading(self.level, max(peak, self.level), self.total, self.allocations)


@dataclass
class Call:
    """One call of a region, as the model remembers it."""

    path: tuple[str, ...]
    began: tuple[int, int, int]
    levels: list[int]
    handle: object
    ended: tuple[int, int, int] | None = None


@dataclass
class Model:
    """Everything that ever happened."""

    stacks: dict[int, list[Call]] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    levels: list[int] = field(default_factory=lambda: [0])
    sampled: int = 0

    def see(self, level: int) -> None:
        self.levels.append(level)
        for stack in self.stacks.values():
            for call in stack:
                call.levels.append(level)


@contextmanager
def as_thread(number: int) -> Iterator[None]:
    with patch.object(module, "get_ident", lambda: number):
        yield


def run(actions: list[tuple[str, int, object]]) -> tuple[RegionLedger, Model]:
    allocator, model = Allocator(), Model()
    ledger = RegionLedger(allocator.take, 0)

    def state() -> tuple[int, int, int]:
        return allocator.level, allocator.total, allocator.allocations

    for action, thread, what in actions:
        stack = model.stacks.setdefault(thread, [])
        match action:
            case "alloc" | "free":
                (allocator.allocate if action == "alloc" else allocator.free)(what)
                model.see(allocator.level)
            case "enter":
                outer = stack[-1].path if stack else ()
                call = Call((*outer, what), state(), [allocator.level], object())
                stack.append(call)
                model.calls.append(call)
                with as_thread(thread):
                    ledger.enter(call.handle, what)
            case "leave" if stack:
                left = stack[-1 - what % len(stack)]
                while not left.ended:
                    stack.pop().ended = state()
                with as_thread(thread):
                    ledger.leave(left.handle)
            case "sample":
                taken = ledger.sample()
                assert taken.allocated_bytes == allocator.level
                assert taken.peak_bytes == max(model.levels[model.sampled :])
                model.sampled = len(model.levels) - 1
    for call in model.calls:
        call.ended = call.ended or state()
    ledger.end()
    return ledger, model


@given(ACTIONS)
def test_regions_say_what_a_full_memory_of_the_run_says(actions: list[tuple[str, int, object]]) -> None:
    ledger, model = run(actions)
    found = {region.path: region for region in ledger.regions()}
    assert list(found) == list(dict.fromkeys(call.path for call in model.calls))
    for path, region in found.items():
        calls = [call for call in model.calls if call.path == path]
        changes = [[end - start for start, end in zip(call.began, call.ended, strict=True)] for call in calls]
        assert region.calls == len(calls)
        assert region.peak_bytes == max(max(call.levels) for call in calls)
        assert region.growth_bytes == max(max(call.levels) - call.began[0] for call in calls)
        assert (region.delta_bytes, region.total_bytes, region.allocations) == tuple(
            map(sum, zip(*changes, strict=True))
        )
    assert ledger.peak == max(model.levels)


@given(ACTIONS)
def test_times_add_up(actions: list[tuple[str, int, object]]) -> None:
    ticks = iter(range(10**6))
    with patch.object(module, "monotonic_ns", lambda: next(ticks)):
        ledger, _ = run(actions)
    regions = ledger.regions()
    for region in regions:
        inside = [each for each in regions if each.path[:-1] == region.path]
        own = round(1e9 * (region.seconds - sum(each.seconds for each in inside)))
        assert round(1e9 * region.self_seconds) == own >= 0


def test_a_handle_that_was_never_entered_leaves_nothing() -> None:
    allocator = Allocator()
    ledger = RegionLedger(allocator.take, 0)
    ledger.leave(object())
    ledger.enter("outer", "outer")
    ledger.leave(object())
    ledger.leave("outer")
    assert [(region.path, region.calls) for region in ledger.regions()] == [(("outer",), 1)]


def test_an_allocator_that_counts_no_requests_gives_none() -> None:
    ledger = RegionLedger(lambda: CounterReading(7, 9), 0)
    ledger.enter("a", "a")
    ledger.leave("a", failed=True)
    (region,) = ledger.regions()
    assert (region.total_bytes, region.allocations, region.errors, region.peak_bytes) == (None, None, 1, 9)
