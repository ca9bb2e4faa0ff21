"""Which length is traced next, without tracing any."""

from collections import Counter

from memplan.replay.records import Request
from memplan.simulate.coverage import most_wanted, spread
from memplan.simulate.family import TracedLength, put_together


def known(lengths, size, extra=lambda length: 0):
    """Families of programs with one storage, and so many more requests as ``extra`` says."""

    def streams(length):
        step = tuple(Request("alloc", key, size(length), 0) for key in range(1 + extra(length)))
        return TracedLength(length=length, set_up=(), warm_up=(), step=step, carried=())

    return put_together({length: streams(length) for length in lengths})


def drawn(*lengths):
    return Counter(lengths)


def test_spread_keeps_both_ends():
    assert spread(range(101), 5) == [0, 25, 50, 75, 100]
    assert spread([3, 9], 5) == [3, 9]


def test_nothing_is_wanted_where_a_form_holds():
    assert most_wanted(known([10, 21, 35, 50], lambda n: 4 * n), drawn(*range(10, 51))) is None


def test_the_middle_of_the_steps_between_two_families_is_wanted():
    families = known([10, 21, 30, 41, 50, 61], lambda n: 4 * n, extra=lambda n: n > 30)
    assert [member.longest for member in families.members] == [30, 61]
    assert most_wanted(families, drawn(10, 31, 33, 34, 38, 39, 61)) == 34
    # One step in a hundred may be played at the next longer length.
    assert most_wanted(families, drawn(35, *(2 * [*range(41, 62), *range(10, 31)]))) is None


def test_a_length_that_tells_paddings_apart_is_wanted():
    """All traced lengths pad alike to 16 and to 32; only lengths of the lower half of a 32 decide."""
    families = known([182, 245, 311, 378, 412], lambda n: 32 * (-(-n // 32) * 32))
    wanted = most_wanted(families, drawn(*range(182, 413)))
    assert wanted % 32 in range(1, 17)


def test_sizes_of_no_form_are_wanted_more_points():
    families = known([10, 20, 30, 40], lambda n: n**5)
    assert most_wanted(families, drawn(10, 15, 20, 25, 30, 35, 40)) in (15, 25, 35)
