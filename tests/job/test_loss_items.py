"""What a loss reads of a batch, from its source."""
# ruff: noqa: RUF059 - what a loss takes apart and does not use is tested

from typing import NamedTuple

import pytest

from memplan.job.loss_items import EVERYTHING, loss_items, places


class Pair(NamedTuple):
    image: int
    label: int


def nothing(output, batch):
    return output.mean()


def one(output, batch):
    return output - batch[1]


def last(output, data, weight=1.0):
    return weight * (output - data[-1])


def rest(output, batch):
    return output - sum(batch[1:])


def apart(output, batch):
    _, target = batch
    return output - target


def nested(output, batch):
    image, (mask, label), *more = batch
    return (output - label) * mask


def starred(output, batch):
    *_, target = batch
    return output - target


def tail(output, batch):
    first, *more, end = batch
    return output - sum(more)


def named(output, batch):
    return output - batch.label


def unused(output, batch):
    image, label = batch
    return output - label


def handed_on(output, batch):
    return one(output, batch)


def renamed(output, batch):
    other = batch
    return output - other[0]


def computed(output, batch):
    return output - batch[len(output)]


def inner(output, batch):
    def difference(place):
        return output - batch[place]

    return difference(1) + batch[1]


def anything(*arguments):
    return arguments[1]


short = lambda output, batch: output - batch[1]  # noqa: E731


@pytest.mark.parametrize(
    ("loss", "read"),
    [
        (nothing, set()), (one, {1}), (last, {2}), (rest, {1, 2}), (nested, {1}), (starred, {2}), (tail, {1}),
        (short, {1}), (handed_on, {0, 1, 2}), (renamed, {0, 1, 2}), (computed, {0, 1, 2}), (inner, {0, 1, 2}),
        (anything, {0, 1, 2}), (print, {0, 1, 2}), (named, {0, 1, 2}),
    ],
)  # fmt: skip
def test_what_a_loss_reads_of_three(loss, read):
    assert places(loss_items(loss), (0, 1, 2)) == read


@pytest.mark.parametrize("loss", [apart, named, unused])
def test_what_a_loss_reads_of_a_named_pair(loss):
    assert places(loss_items(loss), Pair(0, 1)) == {1}


def test_a_batch_may_be_shorter_than_what_is_read():
    assert places((5, -4, slice(1, 9)), (0, 1)) == {1}
    assert places(EVERYTHING, ()) == frozenset()
