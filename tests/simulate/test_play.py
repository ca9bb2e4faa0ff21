"""Playing a workload against its unrolled stream, and the laws of every policy."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memplan.replay.allocator import make_caching
from memplan.replay.conf import parse_conf
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.records import Request
from memplan.replay.replay import replay
from memplan.simulate.compose import passed_bytes, without_leftovers
from memplan.simulate.family import TracedLength, put_together
from memplan.simulate.play import DeviceTraffic, StepPlayer
from memplan.simulate.policies import all_policies, name_of, prepare, run_policy
from memplan.simulate.records import DeviceCalls
from memplan.units import MIB
from tests.replay.replay_streams import requests
from tests.simulate.workloads import TRACED, programs, traced, unrolled, workload, workload_of

quick = settings(deadline=None, max_examples=30)
POLICIES = all_policies(["roundup_power2_divisions:2"], (), 0.2)
PYTORCH = [policy for policy in POLICIES if getattr(policy, "conf", None) is not None]
some_lengths = st.lists(st.integers(min(TRACED), max(TRACED)), min_size=2, max_size=6)


class Tireless(StepPlayer):
    """Plays every step: no state is ever the same."""

    def _state(self):
        return len(self.steps)


def played(policy, work, kind=StepPlayer, limit=None):
    prepared = prepare(policy, work, limit_bytes=limit, device_bytes=None)
    player = kind(prepared.allocator, prepared.begin)
    player.run(work)
    return player


@quick
@given(programs(), some_lengths, st.sampled_from(PYTORCH))
def test_steps_of_any_lengths_equal_their_unrolled_stream(program, lengths, policy):
    steps = played(policy, workload(program, lengths)).steps
    flat = replay(unrolled(program, lengths), policy=parse_conf(policy.conf))
    assert [step.length for step in steps] == lengths
    setup = replay(unrolled(program, []), policy=parse_conf(policy.conf))
    assert max(step.peak_requested for step in steps) == max(flat.peak_requested, setup.peak_requested)
    assert max(step.peak_allocated for step in steps) == flat.peak_allocated
    assert max(step.peak_reserved for step in steps) == flat.peak_reserved
    assert steps[-1].end_reserved == flat.end_reserved


@quick
@given(programs(), st.integers(min(TRACED), max(TRACED)), st.sampled_from(POLICIES))
def test_stopping_early_changes_nothing(program, length, policy):
    work = workload(program, [length] * 40)
    assert played(policy, work).steps == played(policy, work, Tireless).steps


@quick
@given(programs(), some_lengths, st.sampled_from(POLICIES))
def test_the_laws_of_every_policy(program, lengths, policy):
    work = workload(program, lengths)
    steps = played(policy, work).steps
    naive = replay(unrolled(program, lengths), policy=parse_conf(""))
    assert max(step.peak_requested for step in steps) == naive.peak_requested, name_of(policy)
    for step in steps:
        assert step.requested_at_peak <= step.peak_requested
        assert step.requested_at_peak <= step.allocated_at_peak <= step.peak_allocated <= step.peak_reserved
        assert step.end_reserved <= step.peak_reserved
        assert step.largest_free <= step.end_reserved
        assert 0 <= step.external_fragmentation < 1
        assert 0 <= step.internal_fragmentation < 1
    requests = sum(request.action == "alloc" for request in unrolled(program, lengths))
    assert sum(step.calls.requests for step in steps) == requests


@quick
@given(programs(), some_lengths)
def test_a_static_plan_holds_at_least_its_bound(program, lengths):
    run = run_policy(POLICIES[-1], workload(program, lengths))
    assert run.floor <= run.peak_reserved


@pytest.mark.parametrize("policy", PYTORCH, ids=name_of)
def test_device_calls_account_for_every_reserved_byte(policy):
    """Segments of 20 MiB and of their own size; expandable ones in units of 2 and 20 MiB."""
    program = ([MIB, 32 * MIB], [("alloc", 0, 0, 512), ("free", 0, 0)])
    run = run_policy(policy, workload(program, [100, 100]))
    calls = run.calls
    if "expandable" in policy.conf:
        # 2 MiB for the two small ones, 40 MiB in units of 20 for the large one.
        assert (calls.maps, calls.allocations, run.peak_reserved) == (1 + 2, 0, 42 * MIB)
    else:
        assert (calls.maps, calls.allocations, calls.frees) == (0, 2, 0)
        assert run.peak_reserved == 34 * MIB


@quick
@given(requests(allocation_sizes=st.integers(2 * MIB, 48 * MIB)), st.integers(60, 200), st.booleans())
def test_mapped_less_unmapped_is_reserved_even_where_a_device_is_full(stream, limit, expandable):
    """Every request is a large one, so that all units are alike: 20 MiB, or segments that come and go."""
    policy = AllocatorPolicy(expandable_segments=expandable)
    allocator, traffic, live = make_caching(policy, limit_bytes=limit * MIB), DeviceTraffic(), {}
    allocator.observers = (traffic,)
    for action, key, nbytes, number in stream:
        if action == "free":
            if key in live:
                allocator.free(live.pop(key))
        elif (block := allocator.allocate(nbytes, number)) is not None:
            live[key] = block
        if expandable:
            assert (traffic.maps - traffic.unmaps) * 20 * MIB == allocator.reserved
        else:
            assert traffic.allocations - traffic.frees == len(allocator.layout().segments)


def test_figures_of_a_step_at_its_peak():
    """By hand: 3 MiB asked for gets a block of a 20 MiB segment; 100 bytes get 512 of a 2 MiB one."""
    program = ([], [("alloc", 0, 0, 3 * MIB), ("alloc", 1, 0, 100), ("free", 1, 0), ("free", 0, 0)])
    first, second = played(PYTORCH[0], workload(program, [100, 100])).steps
    assert (first.peak_requested, first.peak_allocated, first.peak_reserved) == (3 * MIB + 100, 3 * MIB + 512, 22 * MIB)
    assert first.external_fragmentation == 1 - (3 * MIB + 512) / (22 * MIB)
    assert first.internal_fragmentation == 1 - (3 * MIB + 100) / (3 * MIB + 512)
    assert first.largest_free == 20 * MIB
    assert first.calls == DeviceCalls(requests=2, allocations=2)
    assert second.calls == DeviceCalls(requests=2)


def test_families_that_leave_different_things_behind_follow_one_another():
    """Short steps leave a value that long ones do not: between them it is freed, or made."""
    program = ([MIB], [("alloc", 0, 0, 5 * MIB), ("free", 0, 1)])
    short = traced(program, 10)
    long = TracedLength(
        length=20,
        set_up=short.set_up,
        warm_up=((Request("alloc", 7, MIB, 0), Request("free", 7, 0, 0)),),
        step=(Request("alloc", 8, 9 * MIB, 0), Request("free", 8, 0, 0)),
        carried=(),
    )
    work = workload_of(put_together({10: short, 20: long}), [10, 10, 20, 20, 10, 10])
    steps = played(PYTORCH[0], work).steps
    alone = MIB + 5 * MIB
    # Two at once where one step's value meets the last one's; the long step finds nothing of it.
    assert [step.peak_requested for step in steps] == [
        alone, alone + 5 * MIB, MIB + 9 * MIB, MIB + 9 * MIB, alone + 5 * MIB, alone + 5 * MIB,
    ]  # fmt: skip


@quick
@given(programs(), some_lengths)
def test_without_leftovers_steps_ask_for_the_same_and_keep_less(program, lengths):
    work = workload(program, lengths)
    kept, freed = played(PYTORCH[0], work).steps, played(PYTORCH[0], without_leftovers(work)).steps
    for one, other in zip(kept, freed, strict=True):
        assert one.calls.requests == other.calls.requests
        assert other.peak_requested <= one.peak_requested
    # By hand: what a program leaves are its values that a later step frees.
    ages = {name: age for action, name, age, *_ in program[1] if action == "free"}
    sizes = {name: (slope, constant) for action, name, slope, *constant in program[1] if action == "alloc"}
    left = [sizes[name][0] * max(lengths) + sizes[name][1][0] for name, age in ages.items() if age == 1]
    assert passed_bytes(work) == sum(left)


def test_a_value_freed_by_its_own_step_is_not_alive_in_the_next():
    """By hand: 9 MiB are used and freed while the old 5 MiB wait for the new ones."""
    program = ([], [("alloc", 1, 0, 9 * MIB), ("free", 1, 0), ("alloc", 0, 0, 5 * MIB), ("free", 0, 1)])
    work = workload(program, [100, 100, 100])
    assert [step.peak_requested for step in played(PYTORCH[0], work).steps] == [9 * MIB, 14 * MIB, 14 * MIB]
    freed = played(PYTORCH[0], without_leftovers(work)).steps
    assert [step.peak_requested for step in freed] == [9 * MIB, 9 * MIB, 9 * MIB]


def test_the_limit_of_a_device_ends_a_run_or_is_kept_by_giving_back():
    class Card:
        total_bytes = usable_bytes = 50 * MIB
        context_bytes = 0

    grows = ([], [("alloc", 0, 30 * 1024, 1), ("free", 0, 0)])
    # Each longer step needs a new segment; what the shorter ones left must go first.
    fits = run_policy(PYTORCH[0], workload(grows, [400, 500, 600, 900, 1500]), Card())
    assert (fits.out_of_memory, fits.limited) == (None, True)
    assert fits.calls.retries > 0
    assert fits.calls.frees > 0
    assert fits.peak_reserved <= 50 * MIB
    full = run_policy(PYTORCH[0], workload(([30 * MIB], grows[1]), [400, 500, 900, 1500]), Card())
    assert (full.failed_step, full.limited) == (3, False)
    assert full.out_of_memory.wanted == 28 * MIB
    assert len(full.steps) == 4


def test_steps_beyond_the_traced_ones_are_not_needed():
    program = ([MIB], [("alloc", 0, 0, 5 * MIB), ("free", 0, 1)])
    assert len(played(PYTORCH[0], workload(program, [100])).steps) == 1


def test_a_run_that_repeats_says_when():
    program = ([MIB], [("alloc", 0, 0, 5 * MIB), ("free", 0, 0)])
    player = played(PYTORCH[0], workload(program, [100] * 1000))
    assert player.settled_at < 10
    assert len(player.steps) == 1000
