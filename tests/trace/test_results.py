"""Results that are remembered are those that the fake mode would return, trait by trait."""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from memplan.trace.results import Results

aten = torch.ops.aten


class Remembering(TorchDispatchMode):
    """Lets every op go through the memory, and notes which of them reached the fake mode."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.results = Results()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.results.run(func, args, kwargs or {})


@contextlib.contextmanager
def remembering() -> Iterator[Results]:
    with FakeTensorMode(allow_non_fake_inputs=True), Remembering() as mode:
        yield mode.results


def hits(results: Results, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Takes note of every result that is made from memory."""
    seen: list[object] = []
    again = results._again
    monkeypatch.setattr(results, "_again", lambda *args: seen.append(args) or again(*args))
    return seen


def seen_of(result: Any, given: list[torch.Tensor]) -> list[object]:
    """All that code can see of a result: its tensors, and what they share with what they were made of."""
    storages = [tensor.untyped_storage()._cdata for tensor in given]
    leaves = tree_leaves(result)
    return [
        (
            type(leaf), tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.device, leaf.storage_offset(),
            leaf.untyped_storage().nbytes(), leaf.requires_grad, leaf.is_conj(), leaf.is_neg(), leaf.is_inference(),
            leaf.is_contiguous(), leaf.untyped_storage()._cdata in storages and
            storages.index(leaf.untyped_storage()._cdata), [leaf is each for each in given],
            [leaf.untyped_storage()._cdata == other.untyped_storage()._cdata for other in leaves],
        )
        for leaf in leaves
    ]  # fmt: skip


CALLS: dict[str, Callable[[torch.Tensor], Any]] = {
    "add": lambda x: x + 1,
    "add float": lambda x: x + 1.5,
    "mul": lambda x: x * x,
    "in place": lambda x: x.add_(1),
    "fill": lambda x: x.zero_(),
    "out": lambda x: torch.neg(x, out=torch.empty(x.shape, dtype=x.dtype)),
    "transpose": lambda x: x.transpose(0, -1),
    "slice": lambda x: x[..., 1:],
    "select": lambda x: x[0],
    "expand": lambda x: x.unsqueeze(0).expand(3, *x.shape),
    "reshape": lambda x: x.reshape(-1),
    "flat": lambda x: x.contiguous().view(-1),
    "split": lambda x: x.split(1),
    "unbind": lambda x: x.unbind(),
    "chunk": lambda x: x.chunk(2, dim=-1),
    "cast": lambda x: x.to(torch.bfloat16),
    "bits": lambda x: x.contiguous().view(torch.int32),
    "sum": lambda x: x.sum(-1, keepdim=True),
    "max": lambda x: x.max(0),
    "sort": lambda x: x.sort(stable=True),
    "softmax": lambda x: x.softmax(-1),
    "matmul": lambda x: x.flatten(1) @ x.flatten(1).T,
    "norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    "compare": lambda x: x > 0,
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "cat": lambda x: torch.cat([x, x], dim=-1),
    "stack": lambda x: torch.stack([x, x]),
    "like": torch.empty_like,
    "zeros": lambda x: torch.zeros(x.shape),
    "random": torch.rand_like,
    "dropout": lambda x: torch.native_dropout(x, 0.5, True),
    "foreach": lambda x: torch._foreach_sqrt([x, x]),
    "complex": lambda x: torch.view_as_complex(torch.stack([x, x], dim=-1)).conj(),
    "detach": lambda x: x.detach(),
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]),
}

shapes = st.lists(st.integers(1, 5), min_size=3, max_size=3).map(tuple)
layouts = st.permutations([0, 1, 2])


def made(shape: tuple[int, ...], order: list[int], *, gap: int) -> torch.Tensor:
    """A tensor whose dimensions lie in any order, somewhere in a larger storage."""
    whole = torch.empty([shape[axis] + gap for axis in order])
    return whole.permute([order.index(axis) for axis in range(3)])[gap:, gap:, gap:]


@given(
    name=st.sampled_from(sorted(CALLS)), shape=shapes, orders=st.tuples(layouts, layouts), grad=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)  # fmt: skip
@settings(deadline=None, max_examples=40)
def test_a_call_returns_what_the_fake_mode_would(
    name: str, shape: tuple[int, ...], orders: tuple[list[int], ...], grad: bool, dtype: torch.dtype
) -> None:
    def run(order: list[int], gap: int) -> list[object]:
        given_tensor = made(shape, order, gap=gap)
        try:
            with torch.set_grad_enabled(grad):
                return seen_of(CALLS[name](given_tensor), [given_tensor])
        except (RuntimeError, IndexError) as error:
            return [type(error)]

    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with FakeTensorMode() as mode:
            mode.cache_enabled = False
            expected = [run(order, gap) for order in orders for gap in (0, 1)]
        with remembering():
            for _ in range(2):
                assert [run(order, gap) for order in orders for gap in (0, 1)] == expected
    finally:
        torch.set_default_dtype(default)


@pytest.mark.parametrize("name", ["add", "in place", "transpose", "split", "matmul", "foreach", "zeros", "attention"])
def test_the_second_call_does_not_reach_the_fake_mode(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with remembering() as results:
        CALLS[name](torch.empty(2, 3, 4))
        seen = hits(results, monkeypatch)
        CALLS[name](torch.empty(2, 3, 4))
        assert seen


def test_a_view_is_of_the_tensor_that_was_given_now() -> None:
    with remembering():
        first, second = torch.empty(4, 4), torch.empty(4, 4)
        first.view(16)
        assert second.view(16).untyped_storage()._cdata == second.untyped_storage()._cdata


def test_equal_numbers_of_different_types_are_different_calls() -> None:
    with remembering():
        whole = torch.empty(3, dtype=torch.int64)
        assert [(whole + number).dtype for number in (1, 1.0, True)] == [torch.int64, torch.float32, torch.int64]
        torch.set_default_dtype(torch.float64)
        try:
            assert (whole + 1.0).dtype is torch.float64
        finally:
            torch.set_default_dtype(torch.float32)


def test_an_op_that_changes_its_argument_changes_it_each_time() -> None:
    with remembering():
        for _ in range(3):
            tensor = torch.empty(2, 3)
            tensor.t_()
            assert tensor.shape == (3, 2)
            tensor.resize_(10)
            assert tensor.untyped_storage().nbytes() == 40


def test_constants_keep_their_values() -> None:
    with remembering():
        assert [torch.tensor(float(number)).add(1).item() for number in range(3)] == [1.0, 2.0, 3.0]


def test_tensors_of_inference_mode_stay_what_they_are() -> None:
    with remembering():
        for _ in range(2):
            with torch.inference_mode():
                inside = torch.empty(3) + 1
            assert inside.is_inference()
            assert not (torch.empty(3) + 1).is_inference()
            assert (inside + 1).is_inference() is False


def test_another_fake_mode_gets_tensors_of_its_own() -> None:
    results = []
    mode = Remembering()
    for _ in range(2):
        with FakeTensorMode() as fake, mode:
            results.append((torch.empty(3) + 1).fake_mode is fake)
    assert results == [True, True]


def test_a_mode_that_captures_sees_every_call() -> None:
    with FakeTensorMode() as fake:
        example = torch.empty(3)
        with Remembering():
            for _ in range(2):
                captured = make_fx(lambda x: (x + 1) * 2)(example)
                targets = [node.target for node in captured.graph.nodes if node.op == "call_function"]
                assert targets == [aten.add.Tensor, aten.mul.Tensor]
        assert fake is not None


@pytest.mark.parametrize("allowed", [False, True])
def test_who_asks_for_an_address_is_told_as_by_the_fake_mode(allowed: bool) -> None:
    with torch._functorch.config.patch(fake_tensor_allow_unsafe_data_ptr_access=allowed), remembering():
        for _ in range(2):
            tensor = torch.empty(3) + 1
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if allowed:
                    assert tensor.data_ptr() == 0
                else:
                    with pytest.raises(RuntimeError, match="data pointer"):
                        tensor.data_ptr()
