"""Static placement: checked by brute force, and on published instances."""

import csv
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memplan.simulate.check_placement import problems_of
from memplan.simulate.placement import Buffer, Placement, max_load, place

DATA = Path(os.environ.get("MEMPLAN_DATA", Path(__file__).parents[3] / "shared" / "data")) / "dsa"


@st.composite
def buffers(draw):
    found = []
    for _ in range(draw(st.integers(0, 25))):
        start = draw(st.integers(0, 30))
        found.append(Buffer(start=start, end=start + draw(st.integers(1, 12)), size=draw(st.integers(1, 1000))))
    return found


def overlapping(problem, offsets):
    """Every pair that meets in time and in space, the quadratic way."""
    return [
        (i, j)
        for i, a in enumerate(problem)
        for j, b in enumerate(problem[:i])
        if a.start < b.end and b.start < a.end and offsets[i] < offsets[j] + b.size and offsets[j] < offsets[i] + a.size
    ]


@settings(deadline=None, max_examples=150)
@given(buffers())
def test_nothing_overlaps_and_no_height_is_below_the_load(problem):
    found = place(problem)
    assert overlapping(problem, found.offsets) == []
    assert all(offset >= 0 for offset in found.offsets)
    assert found.height == max((o + b.size for o, b in zip(found.offsets, problem, strict=True)), default=0)
    load = max((sum(b.size for b in problem if b.start <= t < b.end) for t in range(50)), default=0)
    assert found.floor == max_load(problem) == load <= found.height


@settings(deadline=None, max_examples=150)
@given(buffers(), st.data())
def test_the_check_finds_an_overlap_exactly_where_there_is_one(problem, data):
    """Offsets at random, against all pairs."""
    offsets = tuple(data.draw(st.integers(0, 3000)) for _ in problem)
    made = Placement(offsets=offsets, height=5000, floor=0, ordering="random")
    assert bool(problems_of(problem, made)) == bool(overlapping(problem, offsets))


def test_the_check_names_what_is_wrong():
    problem = [Buffer(start=0, end=2, size=10), Buffer(start=1, end=3, size=10)]

    def check(offsets, height=20):
        return problems_of(problem, Placement(offsets=offsets, height=height, floor=0, ordering=""))

    assert check((0, 10)) == ()
    assert check((0, 9)) == ("buffers 0 and 1 overlap",)
    assert check((-1, 10)) == ("buffer 0 begins before the arena",)
    assert check((0, 10), height=15) == ("a buffer ends at 20, above the arena's 15",)
    assert check((0,)) == ("1 offsets for 2 buffers",)


def test_a_hole_between_two_is_used():
    """The small ones fit below the last: each ordering that looks for gaps finds the bound."""
    problem = [Buffer(start=0, end=2, size=10), Buffer(start=2, end=4, size=10), Buffer(start=0, end=4, size=5)]
    assert place(problem).height == 15


# Best of the simple orderings that was measured for these instances, as height over load.
@pytest.mark.parametrize(
    ("name", "ratio"), [("idealloc/somas_tensors_resnet50", 1.0064), ("idealloc/iopddl_G_1", 1.0028)]
)
def test_real_graphs_come_close_to_the_bound(name, ratio):
    path = DATA / f"{name}.csv"
    if not path.exists():
        pytest.skip("no instances at hand")
    with path.open() as file:
        rows = [{key.strip(): int(value) for key, value in row.items()} for row in csv.DictReader(file)]
    problem = [Buffer(start=row["lower"], end=row["upper"], size=row["size"]) for row in rows]
    found = place(problem)
    assert overlapping(problem, found.offsets) == []
    assert found.height <= ratio * found.floor
