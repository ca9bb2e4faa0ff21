"""The band that the order of allocations leaves open: by hand, and in the interval."""

from dataclasses import replace
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from memplan.measure.jitter import EXTRA, Jitter, jitter
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.records import MemoryProfile, RepeatedTurn, Request
from memplan.replay.replay import replay
from memplan.replay.stream import RequestStream
from memplan.units import MIB


def stream(*requests: Request) -> RequestStream:
    return RequestStream(prefix=requests, step=(), rename={}, closes=False)


def play(played: RequestStream, policy: AllocatorPolicy | None = None) -> MemoryProfile:
    return replay((*played.prefix, *played.step), policy=policy or AllocatorPolicy(), turns=played.turns)


def band(*requests: Request) -> Jitter:
    given_stream = stream(*requests)
    return jitter(given_stream, play(given_stream), play)


def test_a_block_beside_others_costs_what_their_segments_leave() -> None:
    # Each 3 MiB has a segment of 20 MiB of its stream. One more MiB needs a small segment, 2 MiB; 8 MiB find room in
    # what is left of the first; 64 MiB need exactly themselves.
    requests = (Request("alloc", 0, 3 * MIB, 0), Request("alloc", 1, 3 * MIB, 7))
    assert band(*requests) == (8 * MIB, 1 * MIB)


def test_one_stream_has_no_order_to_choose() -> None:
    assert band(Request("alloc", 0, 3 * MIB, 0), Request("alloc", 1, 3 * MIB, 0)) == (0, 0)


def test_frees_that_wait_for_no_other_stream_are_within_the_band() -> None:
    births = Request("alloc", 0, 30 * MIB, 0), Request("alloc", 1, 30 * MIB, 0), Request("alloc", 2, MIB, 7)
    at_once = stream(births[0], Request("free", 0, 0, 0), *births[1:])
    late = stream(*births, Request("free", 0, 0, 0))
    assert jitter(late, play(late), play, (at_once, play(at_once))).below >= 30 * MIB


@given(st.lists(st.tuples(st.integers(1, 40 * MIB), st.integers(0, 2), st.booleans()), max_size=12), st.booleans())
def test_every_size_of_the_block_is_within_the_band(lives: list[tuple[int, int, bool]], expandable: bool) -> None:
    requests: list[Request] = []
    for key, (nbytes, cuda_stream, dies) in enumerate(lives):
        requests.append(Request("alloc", key, nbytes, cuda_stream))
        requests += [Request("free", key, nbytes, cuda_stream)] if dies else []
    given_stream = stream(*requests)
    policy = AllocatorPolicy(expandable_segments=expandable)
    memory = play(given_stream, policy)
    found = jitter(given_stream, memory, partial(play, policy=policy))
    assert found.below >= 0
    assert found.above >= 0
    if len({each.stream for each in requests}) < 2:
        return
    middle = len(requests) // 2
    for size in EXTRA:
        beside = (*requests[:middle], Request("alloc", 10_000, size, 0), *requests[middle:])
        moved = play(stream(*beside), policy).peak_reserved - size - memory.peak_reserved
        assert -found.below <= moved <= found.above


@given(
    lives=st.lists(st.tuples(st.integers(1, 40 * MIB), st.integers(0, 2)), min_size=1, max_size=5),
    further=st.integers(1, 30),
    others=st.tuples(st.integers(0, 90), st.integers(0, 90)),
)
def test_the_band_of_a_turn_is_that_of_all_that_it_stands_for(
    lives: list[tuple[int, int]], further: int, others: tuple[int, int]
) -> None:
    """A turn frees what the one before it left, in whose place it leaves as much."""
    count = len(lives)

    def turn(number: int) -> list[Request]:
        born = [Request("alloc", number * count + index, *life) for index, life in enumerate(lives)]
        freed = [Request("free", (number - 1) * count + index, 0, 0) for index in range(count)] if number else []
        return [request for pair in zip(born, freed, strict=True) for request in pair] if freed else born

    def around(requests: list[Request]) -> list[Request]:
        before, after = (
            [Request("alloc", 1000 * side + each, MIB * each, side) for each in range(others[side - 1])]
            for side in (1, 2)
        )
        return [*before, *requests, *after]

    begun = [*turn(0), *turn(1)]
    few = around([*begun, *turn(2)])
    first = others[0] + len(begun)
    repeated = RepeatedTurn(first=first, end=first + 2 * count, first_key=2 * count, keys=count, further=further)
    short = replace(stream(*few), turns=(repeated,))
    long = stream(*around([*begun, *(request for number in range(2, 3 + further) for request in turn(number))]))
    assert play(short).peak_reserved == play(long).peak_reserved
    assert jitter(short, play(short), play) == jitter(long, play(long), play)
