from array import array
from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from memplan.validate.compare import compare
from memplan.validate.records import PARTS, AllocationStream, Cause, Named, Share, Tally

MM, ADD = Cause("aten.mm", "layers.0", "model.py:3"), Cause("aten.add.Tensor", "layers.1", "model.py:4")
KERNEL = Cause("aten.mm (workspace)", "MmBackward0", "")


def stream(*events: tuple[int, Cause], marks: tuple[int, ...] = (), phases: str = "") -> AllocationStream:
    """``phases``: the first letter of each event's part."""
    letters = [part[0] for part in PARTS]
    known = tuple(dict.fromkeys(cause for _, cause in events))
    return AllocationStream(
        sizes=array("q", [size for size, _ in events]),
        causes=array("l", [known.index(cause) for _, cause in events]),
        known=known,
        marks=marks,
        phases=array("b", [letters.index(letter) for letter in phases]) if phases else None,
    )


def settled(sizes: list[int]) -> list[int]:
    """Frees that follow each other in the order of their sizes."""
    runs = [list(run) for _, run in groupby(sizes, key=lambda size: size < 0)]
    return [size for run in runs for size in (sorted(run) if run[0] < 0 else run)]


SIZES = st.lists(st.sampled_from([512, -512, 1024, -1024, 4096, -4096]), max_size=30)


@given(SIZES, SIZES, st.data())
def test_counts_add_up(ours: list[int], theirs: list[int], data: st.DataObject) -> None:
    marks = [data.draw(st.integers(0, len(side))) for side in (ours, theirs)]
    phases = "s" * marks[0] + "f" * (len(ours) - marks[0])
    predicted = stream(*((size, MM) for size in ours), marks=(marks[0],), phases=phases)
    real = stream(*((size, KERNEL) for size in theirs), marks=(marks[1],))
    found = compare(predicted, real)
    assert (found.predicted, found.real) == (len(ours), len(theirs))
    assert sum(share.predicted for share in found.shares) == found.predicted
    assert sum(share.real for share in found.shares) == found.real
    assert sum(share.matched for share in found.shares) == found.matched <= min(found.predicted, found.real)
    same = [[*settled(side[:mark]), 0, *settled(side[mark:])] for side, mark in zip((ours, theirs), marks, strict=True)]
    assert found.is_exact == (same[0] == same[1])
    unmatched = found.predicted + found.real - 2 * found.matched
    assert sum(tally.events for tally in found.tallies) == unmatched
    assert sum(each.times for each in found.differences) == found.difference_count <= unmatched


def test_steps_are_aligned_one_by_one_over_those_that_both_have() -> None:
    predicted = stream((512, MM), (1024, MM), (2048, MM), marks=(1, 2), phases="sff")
    real = stream((512, KERNEL), (1024, KERNEL), marks=(1,))
    found = compare(predicted, real)
    assert (found.predicted, found.real, found.matched) == (2, 2, 2)
    assert found.is_exact


def test_a_difference_names_both_sides() -> None:
    predicted = stream((512, MM), (1024, ADD), (-512, MM), marks=(0,), phases="ffb")
    real = stream((512, KERNEL), (8192, KERNEL), (-512, KERNEL), marks=(0,))
    found = compare(predicted, real)
    (difference,) = found.differences
    assert (difference.step, difference.part, difference.times) == (1, "forward", 1)
    assert difference.predicted == (Named("alloc", 1024, ADD),)
    assert difference.real == (Named("alloc", 8192, KERNEL),)
    assert found.tallies == (Tally("real", KERNEL, 1, 8192), Tally("predicted", ADD, 1, 1024))
    assert found.shares == (
        Share(part="forward", predicted=2, real=2, matched=1),
        Share(part="backward", predicted=1, real=1, matched=1),
    )


def test_alike_differences_are_counted_once() -> None:
    layer, real_layer = [(512, MM), (-512, MM)], [(512, MM), (64, KERNEL), (-64, KERNEL), (-512, MM)]
    found = compare(stream(*layer * 3, marks=(0,), phases="f" * 6), stream(*real_layer * 3, marks=(0,)))
    assert found.difference_count == 3
    assert [difference.times for difference in found.differences] == [3]


def test_small_events_are_left_out_of_both_sides() -> None:
    predicted = stream((512, MM), (1024, MM), marks=(1,), phases="sf")
    real = stream((8, KERNEL), (512, KERNEL), (-8, KERNEL), (1024, KERNEL), (4, KERNEL), marks=(3,))
    assert not compare(predicted, real).is_exact
    assert compare(predicted, real, ignored_bytes=16).is_exact


def test_nothing_at_all_is_the_same() -> None:
    found = compare(stream(), stream())
    assert found.is_exact
    assert found.share == 1.0


def test_frees_that_follow_each_other_are_a_set() -> None:
    ours, theirs = [4096, 1024, 512, -1024, -4096, -512, 64], [4096, 1024, 512, -4096, -512, -1024, 64]
    predicted = stream(*((size, MM) for size in ours), marks=(0,), phases="f" * 7)
    assert compare(predicted, stream(*((size, KERNEL) for size in theirs), marks=(0,))).is_exact
    other = [4096, 1024, 512, -4096, -512, 64, -1024]
    assert not compare(predicted, stream(*((size, KERNEL) for size in other), marks=(0,))).is_exact
