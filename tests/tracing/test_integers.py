"""Integers read from tensors: what they are taken for is named, and the interval's ends have the least and the most."""

from collections.abc import Callable
from functools import partial

import pytest
import torch

from memplan.tracing.records import Trace, Way
from memplan.tracing.run import trace_job
from tests.tracing.jobs import CPU, source, spec

LENGTH, BATCH = 12, 4
COUNTED = LENGTH * BATCH


def read_by(read: Callable[[torch.Tensor], int], way: Way) -> tuple[int, Trace]:
    """What a program reads from a batch of scores, and its trace."""
    numbers: list[int] = []

    def loss(output: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        numbers.append(read(output))
        return output.sum()

    given = source(lambda: torch.nn.Linear(LENGTH, LENGTH), lambda size: torch.randn(size, LENGTH), loss=loss)
    recorded = trace_job(lambda: given, spec(batch_size=BATCH), CPU, way=way)
    return numbers[-1], recorded


def longest(x: torch.Tensor) -> int:
    return int((x > 0).sum(1).max().item())


def counted(x: torch.Tensor) -> int:
    return int(x.gt(0).sum().item())


def cast(x: torch.Tensor) -> int:
    return max((x > 0).long().sum(1).tolist())


def best(x: torch.Tensor) -> int:
    return int(x[0].argmax())


def halved(x: torch.Tensor) -> int:
    return int(torch.div((x > 0).sum(1), 2, rounding_mode="floor").max() + 1)


def largest(x: torch.Tensor) -> int:
    return int(x.argmax(1).max())


def drawn(x: torch.Tensor) -> int:
    return int(torch.poisson(torch.full((), 5.0)).item())


def round_counter(x: torch.Tensor) -> int:
    return len(range((x > 0).sum()))


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (longest, (LENGTH, 0, LENGTH)),
        (counted, (COUNTED, 0, COUNTED)),
        (cast, (LENGTH, 0, LENGTH)),
        (halved, (LENGTH // 2 + 1, 0, LENGTH // 2 + 1)),
        (round_counter, (COUNTED, 0, COUNTED)),
        (largest, (LENGTH - 1, 0, LENGTH - 1)),
        (best, (1, 0, LENGTH - 1)),
    ],
)
def test_an_integer_is_at_most_what_its_tensor_allows(
    read: Callable[[torch.Tensor], int], expected: tuple[int, int, int]
) -> None:
    ways: tuple[Way, ...] = ("likely", "other", "most")
    read_in = partial(read_by, read)
    assert tuple(read_in(way)[0] for way in ways) == expected
    _, recorded = read_in("likely")
    assert set(recorded.unsure) == {"other", "most"}
    assert any("the integer read at" in said and "test_integers.py" in said for said in recorded.assumptions)
    assert not any("integer" in said for said in recorded.not_modelled)


def test_where_nothing_bounds_an_integer_it_is_said() -> None:
    number, recorded = read_by(drawn, "likely")
    assert number == 1
    assert any("how large the integer read at" in said for said in recorded.not_modelled)
    assert read_by(drawn, "most")[0] > 20


def test_a_count_that_the_program_cannot_take_is_another() -> None:
    """Here all scores of the batch are more than one row has."""

    def read(x: torch.Tensor) -> int:
        count = int(x.gt(0).sum().item())
        return int(torch.topk(x[0], count).values.numel())

    assert read_by(read, "likely")[0] == 1


def test_packed_lengths_that_nobody_knows_are_named_and_leave_nothing_behind() -> None:
    packed: list[int] = []

    def loss(output: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        lengths = (batch[:, :, 0] > 0).sum(1)
        data = torch.nn.utils.rnn.pack_padded_sequence(output, lengths, batch_first=True, enforce_sorted=False).data
        packed.append(len(data))
        return data.sum()

    given = source(lambda: torch.nn.Linear(LENGTH, LENGTH), lambda size: torch.randn(size, LENGTH, LENGTH), loss=loss)

    def run(way: Way) -> Trace:
        return trace_job(lambda: given, spec(batch_size=BATCH), CPU, way=way)

    assert run("other").repeats
    assert packed.pop() == BATCH
    recorded = run("likely")
    assert packed.pop() == COUNTED
    assert recorded.repeats
    assert "other" in recorded.unsure
    assert any("test_integers.py" in said for said in recorded.assumptions if "padded" in said)
