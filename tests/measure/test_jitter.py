"""The band that the order of allocations leaves open: by hand, and in the interval."""

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from memplan.measure.jitter import EXTRA, Jitter, jitter
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.records import MemoryProfile, Request
from memplan.replay.replay import replay
from memplan.replay.stream import RequestStream
from memplan.units import MIB


def stream(*requests: Request) -> RequestStream:
    return RequestStream(prefix=requests, step=(), rename={}, closes=False)


def play(played: RequestStream, policy: AllocatorPolicy | None = None) -> MemoryProfile:
    return replay((*played.prefix, *played.step), policy=policy or AllocatorPolicy())


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


def test_frees_that_wait_for_other_streams_are_within_the_band() -> None:
    births = Request("alloc", 0, 30 * MIB, 0), Request("alloc", 1, 30 * MIB, 0), Request("alloc", 2, MIB, 7)
    at_once = stream(births[0], Request("free", 0, 0, 0), *births[1:])
    assert jitter(at_once, play(at_once), play, stream(*births, Request("free", 0, 0, 0))).above >= 30 * MIB


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
