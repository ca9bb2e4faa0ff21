"""A stretch of requests as a placement problem: nothing lost, nothing alive at the wrong moment."""

from hypothesis import given
from hypothesis import strategies as st

from memplan.plan.reuse.from_requests import RequestStretch, stretch_of
from memplan.plan.reuse.records import ArenaBuffer
from memplan.replay.records import Request


def alloc(key: int, nbytes: int, stream: int = 0) -> Request:
    return Request("alloc", key, nbytes, stream)


def free(key: int) -> Request:
    return Request("free", key, 0, 0)


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[Request], list[Request]]:
    """Requests before a stretch and in it."""
    alive: list[int] = []
    requests: list[Request] = []
    for key in range(draw(st.integers(0, 25))):
        if alive and draw(st.booleans()):
            requests.append(free(alive.pop(draw(st.integers(0, len(alive) - 1)))))
        requests.append(alloc(key, draw(st.integers(0, 2000))))
        alive.append(key)
    cut = draw(st.integers(0, len(requests)))
    return requests[:cut], requests[cut:]


def alive_at(buffer: ArenaBuffer, moment: int) -> bool:
    return buffer.start <= moment < buffer.end and not any(start <= moment < end for start, end in buffer.gaps)


@given(programs())
def test_at_every_moment_exactly_what_is_alive_counts(program: tuple[list[Request], list[Request]]) -> None:
    before, requests = program
    stretch = stretch_of(before, requests, alignment=64)
    sizes: dict[int, int] = {}
    for request in before:
        sizes[request.key] = -(-request.nbytes // 64) * 64
        if request.action == "free":
            del sizes[request.key]
    for moment, request in enumerate(requests):
        if request.action == "alloc":
            sizes[request.key] = -(-request.nbytes // 64) * 64
        else:
            del sizes[request.key]
        planned = sum(buffer.size for buffer in stretch.problem.buffers if alive_at(buffer, moment))
        # Of an allocation that is freed by the very next request nothing is lost either.
        assert planned + stretch.persistent_bytes == sum(sizes.values())
    assert stretch.outside_bytes == 0


def test_what_a_step_frees_and_leaves_behind_is_one_buffer_with_a_gap() -> None:
    stretch = stretch_of(
        [alloc(1, 512)],
        [alloc(3, 64), free(1), free(3), alloc(4, 64), alloc(2, 512), free(4)],
        heirs={1: 2},
        alignment=64,
    )
    joined, *others = stretch.problem.buffers
    assert (joined.start, joined.end, joined.gaps) == (0, 6, ((1, 4),))
    assert [(buffer.start, buffer.end) for buffer in others] == [(0, 2), (3, 5)]
    assert stretch.keys == (1, 3, 4)


def test_an_heir_born_before_its_ancestor_goes_takes_turns_with_it_in_two_steps() -> None:
    step = [alloc(3, 64), free(3), alloc(2, 512), free(1)]
    stretch = stretch_of([alloc(1, 512)], step, heirs={1: 2}, alignment=64)
    assert stretch.repetitions == 2
    assert stretch.persistent_bytes == 0
    found = {(buffer.start, buffer.end, buffer.gaps, key) for buffer, key in zip(*pairs(stretch), strict=True)}
    assert found == {
        (0, 8, ((3, 6),), 1),  # Freed in the first step; what the second one leaves is in its place.
        (2, 7, (), 2),  # Born in the first step, freed in the second.
        (0, 1, (), 3),
        (4, 5, (), 3),
    }


def pairs(stretch: RequestStretch) -> tuple[tuple[ArenaBuffer, ...], tuple[int, ...]]:
    return stretch.problem.buffers, stretch.keys


@given(st.integers(1, 4), st.integers(0, 3), st.booleans())
def test_many_steps_in_the_places_of_few_never_overlap(age: int, others: int, early: bool) -> None:
    """A result that lives for ``age`` steps: played for long with the plan's places, no two live ones share a byte."""
    frees, births = [free(1)], [alloc(age + 1, 512)]
    temporaries = [line for number in range(others) for line in (alloc(50 + number, 64), free(50 + number))]
    step = [*temporaries, *(births + frees if early else frees + births)]
    before = [alloc(key, 512) for key in range(1, age + 1)]
    stretch = stretch_of(before, step, heirs={key: key + 1 for key in range(1, age + 1)}, alignment=64)
    turns = stretch.repetitions
    length = turns * len(step)
    for buffer in stretch.problem.buffers:
        assert 0 <= buffer.start < buffer.end <= length
    # Bytes alive at each moment are those of the program, however long it runs.
    for moment in range(length):
        alive = sum(buffer.size for buffer in stretch.problem.buffers if alive_at(buffer, moment))
        program = 512 * age
        for request in step[: moment % len(step) + 1]:
            program += 0 if request.key >= 50 else 512 if request.action == "alloc" else -512
        line = step[moment % len(step)]
        program += 64 if line.key >= 50 and line.action == "alloc" else 0
        assert alive + stretch.persistent_bytes == program


def test_an_heir_born_as_its_ancestor_goes_holds_one_place_all_the_time() -> None:
    stretch = stretch_of([alloc(1, 512)], [free(1), alloc(2, 512)], heirs={1: 2}, alignment=64)
    (joined,) = stretch.problem.buffers
    assert (joined.gaps, stretch.repetitions) == (((0, 1),), 1)
    assert stretch.persistent_bytes == 0


def test_other_streams_stay_outside() -> None:
    requests = [
        alloc(1, 1024),
        alloc(2, 512, 7),
        alloc(3, 512, 7),
        free(2),
        free(3),
        alloc(4, 512, 7),
        free(4),
        free(1),
    ]
    stretch = stretch_of([], requests, alignment=512)
    assert stretch.keys == (2, 3, 4)
    assert stretch.outside_bytes == 1024
    assert sum(buffer.size for buffer in stretch.problem.buffers) == 1536
