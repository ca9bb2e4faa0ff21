"""A turn that stands for many: played as often as it takes for the allocator to come around, with the same peaks."""

from operator import attrgetter

from hypothesis import given
from hypothesis import strategies as st

from memplan.replay.policy import AllocatorPolicy
from memplan.replay.records import MemoryProfile, RepeatedTurn, Request
from memplan.replay.replay import replay
from memplan.units import MIB

FIGURES = attrgetter(
    "peak_requested", "peak_allocated", "peak_reserved", "allocated_at_peak", "requested_at_peak", "end_reserved",
    "segments", "retries",
)  # fmt: skip
LEADING = 5
Turn = list[tuple[int, int, int]]
"""Of each allocation its size, how many turns it lives for, and the place among the frees at the turn's end."""

TURNS = st.lists(st.tuples(st.integers(1, 30 * MIB), st.integers(0, 2), st.integers(0, 9)), min_size=1, max_size=8)
BESIDE = st.lists(st.tuples(st.integers(1, 50 * MIB), st.booleans()), max_size=6)


def _requests(turn: Turn, count: int, first: int) -> list[list[Request]]:
    """So many turns; what is born in a turn is freed within it, or amid the next or the one after that."""
    made = []
    for number in range(count):
        born = {place: first + number * len(turn) + place for place in range(len(turn))}
        row: list[Request] = []
        for place, (size, lag, _) in enumerate(turn):
            row.append(Request("alloc", born[place], size, 0))
            if number >= lag > 0:
                row.append(Request("free", born[place] - lag * len(turn), 0, 0))
        order = sorted((each for each in born if not turn[each][1]), key=lambda place: turn[place][2])
        made.append([*row, *(Request("free", born[place], 0, 0) for place in order)])
    return made


def _played(before: list[Request], turns: list[list[Request]], further: int, keys: int, limit: int) -> MemoryProfile:
    start = len(before) + sum(map(len, turns[: LEADING - 1]))
    first_key = min(request.key for request in turns[LEADING - 1] if request.action == "alloc")
    turn = RepeatedTurn(
        first=start, end=start + len(turns[LEADING - 1]), first_key=first_key, keys=keys, further=further
    )
    requests = [*before, *(request for row in turns for request in row)]
    marks = (turn,) if further else ()
    return replay(requests, policy=AllocatorPolicy(), limit_bytes=limit or None, turns=marks)


@given(TURNS, BESIDE, st.integers(1, 40), st.sampled_from([0, 300 * MIB]))
def test_turns_that_are_left_out_change_no_figure(
    turn: Turn, beside: list[tuple[int, bool]], further: int, limit: int
) -> None:
    before = [Request("alloc", key, size, 0) for key, (size, _) in enumerate(beside)]
    before += [Request("free", key, 0, 0) for key, (_, dies) in enumerate(beside) if dies]
    rows = _requests(turn, LEADING + further, len(beside))
    few = _played(before, rows[:LEADING], further, len(turn), limit)
    every = _played(before, rows, 0, len(turn), limit)
    assert (few.out_of_memory is None) == (every.out_of_memory is None)
    if every.out_of_memory is None:
        assert FIGURES(few) == FIGURES(every)
