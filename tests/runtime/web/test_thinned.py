"""A bounded history: nothing is forgotten, and peaks least of all."""

from hypothesis import given
from hypothesis import strategies as st

from memplan.runtime.web.points import Thinned, column, merge_columns, merge_points, point
from tests.runtime.metrics.checks import check, device

MOST = st.integers(1, 8).map(lambda half: 2 * half)


@given(st.lists(st.integers(), max_size=300), MOST)
def test_all_is_kept_in_order_and_within_bounds(values: list[int], most: int) -> None:
    history = Thinned[tuple[int, ...]](most, lambda one, other: one + other)
    for number, value in enumerate(values):
        history.add((value,))
        assert len(history.items) <= most
        assert [each for item in history.items for each in item] == values[: number + 1]
    assert all(len(item) == history.each for item in history.items[:-1])
    # At least half of the room is used: it is not thinner than it has to be.
    assert history.each == 1 or len(history.items) > most // 2


@given(st.lists(st.lists(st.integers(0, 99), max_size=9), max_size=60), MOST)
def test_who_reads_what_is_new_has_all_of_it(batches: list[list[int]], most: int) -> None:
    history = Thinned[int](most, max)
    generation, mine = -1, list[int]()
    for batch in batches:
        for value in batch:
            history.add(value)
        first = history.first_new(generation, len(mine))
        mine[first:] = history.items[first:]
        generation = history.generation
        assert mine == history.items


NUMBERS = st.integers(0, 1 << 40)
CHECKS = st.builds(
    lambda number, used, allocated, reserved, size: check(
        number, device(used=used, allocated=allocated, reserved=reserved, sizes=(size,) * 3)
    ),
    *(NUMBERS, NUMBERS, st.none() | NUMBERS, st.none() | NUMBERS, NUMBERS),
)


@given(st.lists(CHECKS, min_size=1, max_size=40))
def test_the_highest_figure_of_each_kind_outlives_all_thinning(checks: list) -> None:
    points, columns = Thinned(2, merge_points), Thinned(2, merge_columns)
    for each in checks:
        points.add(point(each))
        columns.add(column(each))
    for figure in ("used", "allocated", "reserved"):
        seen = [value for each in checks if (value := getattr(each.reading.devices[0], figure)) is not None]
        kept = [
            value for each in points.items for of in each.devices.values() if (value := getattr(of, figure)) is not None
        ]
        assert max(kept, default=None) == max(seen, default=None)
    assert max(each.level for each in points.items) == max(each.level for each in checks)
    tallest = max(size for each in columns.items for sizes in each.sizes.values() for size in sizes)
    assert tallest == max(each.reading.devices[0].sizes[0] for each in checks)
    assert points.items[-1].seconds == checks[-1].reading.seconds
