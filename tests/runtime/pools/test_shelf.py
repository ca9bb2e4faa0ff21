"""Which cached block serves, and which one goes."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from memplan.runtime.pools.shelves import Shelf


@dataclass(frozen=True)
class Thing:
    nbytes: int
    number: int = 0


def test_the_smallest_that_fits_and_the_last_used_of_them():
    shelf = Shelf()
    for thing in (Thing(8), Thing(4, 1), Thing(4, 2), Thing(16)):
        shelf.put(thing)
    assert shelf.fit(3, 4) == Thing(4, 2)
    assert shelf.fit(5, 7) is None
    assert shelf.fit(5, 8) == Thing(8)
    assert shelf.nbytes == 20


def test_what_is_used_often_outlives_what_is_seen_once():
    shelf = Shelf()
    for _ in range(5):
        shelf.used(4)
    shelf.put(Thing(4))
    for size in (7, 8, 9):
        shelf.used(size)
        shelf.put(Thing(size))
    assert [shelf.evict().nbytes for _ in range(3)] == [7, 8, 9]


def test_what_was_popular_once_ages():
    shelf = Shelf()
    for _ in range(5):
        shelf.used(4)
    shelf.put(Thing(4))
    gone = []
    for number in range(20):
        shelf.used(100 + number)
        shelf.put(Thing(100 + number))
        gone.append(shelf.evict().nbytes)
    assert 4 in gone[3:]


def test_of_equals_the_oldest_goes():
    shelf = Shelf()
    for number in range(3):
        shelf.put(Thing(4, number))
    assert [shelf.evict().number for _ in range(3)] == [0, 1, 2]
    assert shelf.evict() is None


@given(st.lists(st.one_of(st.integers(1, 20), st.tuples(st.integers(1, 20), st.integers(0, 5)), st.none())))
def test_against_a_plain_list(steps):
    shelf, model = Shelf(), []
    for number, step in enumerate(steps):
        if isinstance(step, int):
            shelf.put(Thing(step, number))
            model.append(Thing(step, number))
        elif step is None:
            gone = shelf.evict()
            assert (gone is None) == (not model)
            model = [each for each in model if each != gone]
        else:
            least, more = step
            fitting = [each.nbytes for each in model if least <= each.nbytes <= least + more]
            found = shelf.fit(least, least + more)
            assert (found.nbytes if found else None) == min(fitting, default=None)
            model = [each for each in model if each != found]
        assert (len(shelf), shelf.nbytes) == (len(model), sum(each.nbytes for each in model))
