"""A global batch divided by headroom: the least room left is the most that any division leaves."""

from itertools import product
from pathlib import Path

import pytest
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from memplan.errors import MemplanError, UsageError
from memplan.runtime.adaptive.balance import balanced, balanced_batch
from memplan.runtime.adaptive.ranks import Ranks
from tests.support.ranks import real_ranks

ROOMS = (1000, 400)
SAMPLE = 100


def test_equal_ranks_get_equal_parts() -> None:
    assert balanced(12, (50, 50, 50), 1) == (4, 4, 4)


@given(st.lists(st.integers(40, 90), min_size=2, max_size=3), st.integers(1, 5), st.integers(3, 7))
def test_no_division_leaves_more(rooms: list[int], sample: int, samples: int) -> None:
    counts = balanced(samples, rooms, sample)
    assert sum(counts) == samples
    divisions = (each for each in product(range(1, samples), repeat=len(rooms)) if sum(each) == samples)
    best = max(min(room - sample * count for room, count in zip(rooms, each, strict=True)) for each in divisions)
    assert min(room - sample * count for room, count in zip(rooms, counts, strict=True)) == best


def test_what_does_not_fit_is_said() -> None:
    with pytest.raises(MemplanError, match="rank 1 would be 5 B short"):
        balanced(4, (100, 5), 10)
    with pytest.raises(UsageError):
        balanced(1, (100, 100), 10)


def _balanced(rank: int, _: int) -> tuple[int, int]:
    ranks = Ranks(dist.group.WORLD)
    return balanced_batch(10, ROOMS[rank], SAMPLE + rank - 1, ranks), ranks.position


@pytest.mark.slow
def test_two_ranks_agree(tmp_path: Path) -> None:
    assert real_ranks(_balanced, 2, tmp_path) == [[8, 0], [2, 1]]


def test_one_process_takes_all() -> None:
    assert balanced_batch(10, ROOMS[0], SAMPLE, Ranks()) == 10
