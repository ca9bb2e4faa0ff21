"""A stretch of requests as a placement problem: nothing lost, nothing alive at the wrong moment."""

from hypothesis import given
from hypothesis import strategies as st

from memplan.plan.reuse.records import Buffer
from memplan.plan.reuse.stretch import stretch_of
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


def alive_at(buffer: Buffer, moment: int) -> bool:
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
    assert stretch.total_bytes == sum(buffer.size for buffer in stretch.problem.buffers)
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


def test_an_heir_born_before_its_ancestor_goes_takes_turns_with_it_in_two_places() -> None:
    stretch = stretch_of([alloc(1, 512)], [alloc(2, 512), free(1), alloc(3, 64), free(3)], heirs={1: 2}, alignment=64)
    assert stretch.persistent_bytes == 1024
    assert stretch.keys == (3,)


def test_an_heir_born_as_its_ancestor_goes_holds_one_place_all_the_time() -> None:
    stretch = stretch_of([alloc(1, 512)], [free(1), alloc(2, 512)], heirs={1: 2}, alignment=64)
    (joined,) = stretch.problem.buffers
    assert joined.gaps == ((0, 1),)
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
    assert stretch.total_bytes == 1536
