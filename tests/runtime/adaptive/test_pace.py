"""Sizes of micro-batches from step to step, against a memory of fixed room."""

from hypothesis import given
from hypothesis import strategies as st

from memplan.runtime.adaptive.pace import LONGEST_WAIT, Pace, after_oom, after_step


def run(pace: Pace, samples: int, room: int, steps: int) -> tuple[Pace, int, list[int]]:
    """Steps of one batch; the pace after them, how often memory ran out, and the largest micro-batch of each."""
    failures, sizes = 0, []
    for _ in range(steps):
        while (largest := part_of(samples, pace.size)) > room:
            failures += 1
            pace = after_oom(pace, largest)
        sizes.append(largest)
        pace = after_step(pace, samples)
    return pace, failures, sizes


def part_of(samples: int, size: int) -> int:
    parts = -(-samples // size)
    return -(-samples // parts)


@given(samples=st.integers(1, 500), room=st.integers(1, 600), wait=st.integers(1, 50))
def test_failures_are_few_and_the_size_is_near_the_room(samples: int, room: int, wait: int) -> None:
    pace, failures, sizes = run(Pace(wait=wait), samples, room, 1000)
    # Halvings at first, and then a failure at every doubling of the wait, with those that bracket it.
    assert failures <= samples.bit_length() + (1000 // wait).bit_length() + 2
    assert all(1 <= size <= room for size in sizes)
    assert sizes == sorted(sizes)  # A larger size that fails does not cost the one that worked.
    assert max(sizes) > min(samples, room) // 2 - 1
    assert pace.wait <= LONGEST_WAIT


@given(samples=st.integers(2, 500), wait=st.integers(1, 5))
def test_a_shortage_that_passes_is_forgotten(samples: int, wait: int) -> None:
    pace = Pace(wait=wait)
    pace, _, _ = run(pace, samples, 1, 3)
    _, failures, sizes = run(pace, samples, samples, 200_000 // samples)
    assert (failures, sizes[-1]) == (0, samples)


@given(first=st.integers(1, 100), room=st.integers(1, 100), batches=st.lists(st.integers(1, 300), max_size=60))
def test_it_gets_through_batches_of_any_size(first: int, room: int, batches: list[int]) -> None:
    pace = Pace(size=first, wait=2)
    for samples in batches:
        for _ in range(12):
            largest = part_of(samples, pace.size)
            if largest <= room:
                break
            pace = after_oom(pace, largest)
        assert part_of(samples, pace.size) <= room
        pace = after_step(pace, samples)
        assert pace.size >= 1


def test_nothing_happens_to_a_batch_that_fits() -> None:
    pace, failures, sizes = run(Pace(wait=1), 64, 64, 50)
    assert (failures, set(sizes), pace.size) == (0, {64}, Pace(wait=1).size)
