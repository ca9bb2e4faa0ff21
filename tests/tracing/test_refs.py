"""Facts read off a tensor, held against the memory that its elements really take."""

from random import Random

import torch
from hypothesis import given
from hypothesis import strategies as st

from memplan.tracing.refs import is_dense

LAYOUTS = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 9)), max_size=4)


def offsets(tensor: torch.Tensor) -> list[int]:
    return sorted(tensor.flatten().tolist())


@given(LAYOUTS)
def test_dense_tensors_take_every_place_once(layout: list[tuple[int, int]]) -> None:
    memory = torch.arange(3 * 9 * 4)
    tensor = memory.as_strided([size for size, _ in layout], [stride for _, stride in layout])
    assert is_dense(tensor) == (offsets(tensor) == list(range(tensor.numel())))


@given(st.lists(st.integers(1, 3), max_size=4), st.randoms(use_true_random=False))
def test_any_order_of_dimensions_is_dense(shape: list[int], random: Random) -> None:
    order = list(range(len(shape)))
    random.shuffle(order)
    assert is_dense(torch.empty(shape).permute(order))


def test_sparse_and_empty_tensors() -> None:
    assert not is_dense(torch.eye(2).to_sparse())
    assert is_dense(torch.empty(0, 3))
