"""The moment that reports call the peak."""

import pytest

from memplan.replay.policy import AllocatorPolicy
from memplan.replay.records import Request
from memplan.replay.replay import replay

MIB = 1 << 20


def step(large: int) -> list[Request]:
    """A large buffer comes and goes; then, late, a first small one, for which there is no segment yet."""
    return [
        Request("alloc", 0, large, 0),
        Request("free", 0, 0, 0),
        Request("alloc", 1, 512, 0),
    ]


@pytest.mark.parametrize(("large", "at"), [(1000 * MIB, 0), (100 * MIB, 2)], ids=["small rise", "large rise"])
def test_a_small_late_segment_makes_no_peak_of_a_moment_with_nothing_alive(large: int, at: int) -> None:
    memory = replay(step(large), policy=AllocatorPolicy())
    assert memory.peak_reserved == large + 2 * MIB
    assert (memory.peak_at, memory.allocated_at_peak) == (at, large if at == 0 else 512)
