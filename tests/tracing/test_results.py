"""Results that are remembered are those that the fake mode would return, trait by trait."""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from memplan.tracing.results import Results

aten = torch.ops.aten


class Remembering(TorchDispatchMode):
    """Lets every op go through the memory."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.results = Results()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.results.run(func, args, kwargs or {})


class Checking(Remembering):
    """Asks the fake mode, too, about every op: what the memory says must be what it says."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = self.results.run(func, args, kwargs or {})
        # What changes the shape of an argument would change it twice.
        if torch.Tag.inplace_view not in func.tags:
            given_tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
            try:
                expected = func(*args, **kwargs or {})
            except Exception as error:
                raise AssertionError(f"the fake mode refuses {func}") from error
            assert seen_of(result, given_tensors) == seen_of(expected, given_tensors), func
        return result


@contextlib.contextmanager
def remembering(kind: type[Remembering] = Remembering) -> Iterator[Results]:
    with FakeTensorMode(allow_non_fake_inputs=True) as fake, kind() as mode:
        fake.cache_enabled = False
        yield mode.results


def hits(results: Results, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Takes note of every result that is made from memory."""
    seen: list[object] = []
    again = results._again
    monkeypatch.setattr(results, "_again", lambda *args: seen.append(args) or again(*args))
    return seen


def seen_of(result: Any, given_tensors: list[torch.Tensor]) -> list[object]:
    """All that code can see of a result: its tensors, and what they share with each other and with the arguments."""
    storages = [storage_of(tensor) for tensor in given_tensors]
    leaves = tree_leaves(result)
    others = [storage_of(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return [type(result), *(_seen(leaf, given_tensors, storages, others) for leaf in leaves)]


def _seen(leaf: Any, given_tensors: list[torch.Tensor], storages: list[int], others: list[int]) -> object:
    if not isinstance(leaf, torch.Tensor):
        return type(leaf), leaf
    storage = storage_of(leaf)
    return (
        type(leaf), tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.device, leaf.layout, leaf.storage_offset(),
        leaf.untyped_storage().nbytes(), leaf.requires_grad, leaf.is_conj(), leaf.is_neg(), leaf.is_inference(),
        leaf.is_contiguous(), torch._C._dispatch_keys(leaf).raw_repr(), [leaf is each for each in given_tensors],
        [storage == each for each in storages], [storage == each for each in others],
    )  # fmt: skip


def storage_of(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


# --------------------------------------------------------------------------- the law

CALLS: dict[str, Callable[[torch.Tensor], Any]] = {
    "add": lambda x: x + 1,
    "add float": lambda x: x + 1.0,
    "add bool": lambda x: x + True,
    "mul": lambda x: x * x,
    "in place": lambda x: x.add_(1),
    "fill": lambda x: x.zero_(),
    "out": lambda x: torch.neg(x, out=torch.empty(x.shape, dtype=x.dtype)),
    "out itself": lambda x: aten.neg.out(x, out=x),
    "out of another shape": lambda x: aten.neg.out(x, out=torch.empty(0, dtype=x.dtype)),
    "out alias": lambda x: aten.neg.out(x, out=x.view(x.shape)),
    "transpose": lambda x: x.transpose(0, -1),
    "slice": lambda x: x[..., 1:],
    "select": lambda x: x[0],
    "expand": lambda x: x.unsqueeze(0).expand(3, *x.shape),
    "reshape": lambda x: x.reshape(-1),
    "contiguous": torch.Tensor.contiguous,
    "last": lambda x: x[None].contiguous(memory_format=torch.channels_last),
    "like last": lambda x: torch.empty_like(x[None], memory_format=torch.channels_last),
    "split": lambda x: x.split(1),
    "split unevenly": lambda x: x.split([1, x.shape[0] - 1]),
    "unbind": lambda x: x.unbind(),
    "to itself": lambda x: x.to(x.dtype),
    "cast": lambda x: x.to(torch.bfloat16),
    "bits": lambda x: x.view(torch.uint8),
    "strided": lambda x: torch.as_strided(x, (2,), (1,)),
    "real": torch.view_as_real,
    "sum": lambda x: x.sum(-1, keepdim=True),
    "max": lambda x: x.max(0),
    "sort": lambda x: x.sort(stable=True),
    "softmax": lambda x: x.softmax(-1),
    "matmul": lambda x: x.flatten(1) @ x.flatten(1).T,
    "norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    "where": lambda x: torch.where(x == 0, x, 0.0),
    "cat": lambda x: torch.cat([x, x], dim=-1),
    "like": torch.empty_like,
    "zeros": lambda x: torch.zeros(x.shape),
    "range": lambda x: torch.arange(x.shape[0]),
    "full": lambda x: torch.full(x.shape, 2.0),
    "dropout": lambda x: torch.native_dropout(x, 0.5, True),
    "foreach": lambda x: torch._foreach_neg([x, x]),
    "foreach in place": lambda x: torch._foreach_add_([x, x.clone()], 1),
    "conj": lambda x: x.conj(),
    "resolve": lambda x: x.resolve_conj(),
    "neg view": torch._neg_view,
    "detach": lambda x: x.detach(),
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]),
}  # fmt: skip


class Given(NamedTuple):
    """A tensor that a call is made with, and how torch stands then."""

    shape: tuple[int, ...]
    order: list[int]
    """Of its dimensions in memory, outermost first."""
    gap: int
    """Elements left out in front of each dimension."""
    spare: int
    """Elements that its storage has beyond its own."""
    dtype: torch.dtype
    conj: bool
    default: torch.dtype
    grad: bool

    def made(self) -> torch.Tensor:
        sizes = [self.shape[axis] + self.gap for axis in self.order]
        count = torch.Size(sizes).numel()
        whole = torch.empty(count + self.spare, dtype=self.dtype)[:count].view(sizes)
        tensor = whole.permute([self.order.index(axis) for axis in range(3)])[self.gap :, self.gap :, self.gap :]
        return tensor.conj() if self.conj else tensor


FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "shape": st.tuples(*[st.integers(1, 2)] * 3),
    "order": st.permutations([0, 1, 2]),
    "gap": st.integers(0, 1),
    "spare": st.sampled_from([0, 4]),
    "dtype": st.sampled_from([torch.float32, torch.float64, torch.int64, torch.complex64]),
    "conj": st.booleans(),
    "default": st.sampled_from([torch.float32, torch.float64]),
    "grad": st.booleans(),
}
changes = st.lists(st.sampled_from(sorted(FIELDS)), max_size=2, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: FIELDS[name] for name in names})
)


def called(name: str, tensor: torch.Tensor) -> None:
    """Some dtypes have no such op, and some tensors no such view."""
    with contextlib.suppress(RuntimeError, TypeError, IndexError, NotImplementedError):
        CALLS[name](tensor)


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@given(
    names=st.lists(st.sampled_from(sorted(CALLS)), min_size=1, max_size=3),
    first=st.builds(Given, **FIELDS),
    others=st.lists(changes, max_size=8),
)
@settings(deadline=None, max_examples=30)
def test_a_call_returns_what_the_fake_mode_would(names: list[str], first: Given, others: list[dict[str, Any]]) -> None:
    with remembering(Checking):
        for name in names:
            for one in (first._replace(**other) for other in [{}, *others]):
                with default_dtype(one.default), torch.set_grad_enabled(one.grad):
                    tensor = one.made()
                    if one.grad and tensor.dtype.is_floating_point:
                        tensor = tensor.detach().requires_grad_()
                    called(name, tensor)


PAIRS: dict[str, Callable[[], tuple[torch.Tensor, torch.Tensor]]] = {
    "shape": lambda: (torch.empty(8).as_strided((2, 2, 1), (2, 1, 1)), torch.empty(8).as_strided((1, 2, 1), (2, 1, 1))),
    "stride": lambda: (
        torch.empty(8).as_strided((2, 2, 2), (4, 2, 1)),
        torch.empty(8).as_strided((2, 2, 2), (1, 2, 4)),
    ),
    "dtype": lambda: (torch.empty(2, 2, 2), torch.empty(2, 2, 2, dtype=torch.int32)),
    "offset": lambda: (torch.empty(9)[:8].view(2, 2, 2), torch.empty(9)[1:].view(2, 2, 2)),
    "storage": lambda: (torch.empty(8)[:1].view(1, 1, 1), torch.empty(1, 1, 1)),
    "conjugate": lambda: ((x := torch.empty(2, 2, 2, dtype=torch.complex64)), x.clone().conj()),
    "negative": lambda: (torch.empty(2, 2, 2), torch._neg_view(torch.empty(2, 2, 2))),
    "gradient": lambda: (torch.empty(2, 2, 2), torch.empty(2, 2, 2, requires_grad=True)),
    "parameter": lambda: (torch.empty(2, 2, 2), torch.nn.Parameter(torch.empty(2, 2, 2))),
    "zero": lambda: (torch.empty(2, 2, 2), torch._efficientzerotensor(2, 2, 2)),
    "view": lambda: (torch.empty(2, 2, 2), torch.empty(8).view(2, 2, 2)),
}
"""Tensors that differ in one trait alone."""


@pytest.mark.parametrize("trait", PAIRS)
def test_every_trait_of_a_tensor_counts(trait: str) -> None:
    for turned in (False, True):
        with remembering(Checking):
            pair = PAIRS[trait]()
            for name in CALLS:
                for tensor in reversed(pair) if turned else pair:
                    called(name, tensor)


@pytest.mark.parametrize("name", ["add", "in place", "transpose", "split", "matmul", "foreach", "zeros", "attention"])
def test_the_second_call_does_not_reach_the_fake_mode(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with remembering() as results:
        CALLS[name](torch.empty(2, 3, 4))
        seen = hits(results, monkeypatch)
        CALLS[name](torch.empty(2, 3, 4))
        assert seen


# --------------------------------------------------------------------------- what a call is made of


def test_a_view_is_of_the_tensor_that_was_given_now() -> None:
    with remembering():
        first, second = torch.empty(4, 4), torch.empty(4, 4)
        first.view(16)
        assert storage_of(second.view(16)) == storage_of(second)


def test_what_is_written_to_is_returned_whatever_was_the_same_before() -> None:
    with remembering(Checking):
        one, other = torch.empty(4), torch.empty(4)
        for out in (one, other, one.view(4), one):
            aten.neg.out(one, out=out)
        for first, second in ((one, one), (one, other), (one, one[:])):
            aten._foreach_add_.List([first, second], [second, first])


def test_views_are_of_the_first_argument() -> None:
    """So which arguments share a storage need not be told apart."""
    found = 0
    for schema in torch._C._jit_get_all_schemas():
        aliases = [each.alias_info for each in schema.returns if each.alias_info and not each.alias_info.is_write]
        of_tensors = all("Tensor" in str(each.type) for each in schema.returns)
        if schema.name.startswith("aten::") and aliases and of_tensors and "Tensor" in str(schema.arguments[0].type):
            assert not any(each.alias_info for each in schema.arguments[1:]), schema
            found += 1
    assert found > 50


def test_equal_numbers_of_different_types_are_different_calls() -> None:
    with remembering(Checking):
        whole = torch.empty(3, dtype=torch.int64)
        assert [(whole + number).dtype for number in (1, 1.0, True)] == [torch.int64, torch.float32, torch.int64]
        with default_dtype(torch.float64):
            assert (whole + 1.0).dtype is torch.float64


def test_names_and_lengths_of_arguments_count() -> None:
    with remembering(Checking):
        tensor = torch.empty(2, 1)
        aten.split_with_sizes(tensor, [1, 1])
        aten.split_with_sizes(tensor, [1], 1)
        for option in ("right", "out_int32"):
            aten.searchsorted.Tensor(torch.empty(4), torch.empty(4), **{option: True})


def test_tensors_in_lists_are_told_apart_by_the_lists() -> None:
    with remembering(Checking):
        one, two, three = (torch.empty(2) for _ in range(3))
        aten._foreach_addcmul.Scalar([one], [two], [three])
        with pytest.raises(RuntimeError, match="same number of tensors"):
            aten._foreach_addcmul.Scalar([one, two], [three], [])


def test_sparse_tensors_are_asked_about_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with remembering() as results, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seen = hits(results, monkeypatch)
        for _ in range(2):
            sparse = torch.sparse_coo_tensor(torch.zeros(2, 1, dtype=torch.int64), torch.zeros(1), (2, 2))
            seen.clear()
            assert (sparse * 2).layout is torch.sparse_coo
            assert not seen


# --------------------------------------------------------------------------- what metadata do not tell


def test_an_op_that_changes_its_argument_changes_it_each_time() -> None:
    with remembering():
        for _ in range(3):
            tensor, other = torch.empty(2, 3), torch.empty(2, 3)
            tensor.set_(other)
            assert storage_of(tensor) == storage_of(other)
            tensor.t_()
            assert tensor.shape == (3, 2)
            tensor.resize_(10)
            assert tensor.untyped_storage().nbytes() == 40
            out = torch.empty(0)
            aten.neg.out(tensor, out=out)
            assert out.shape == (10,)


def test_results_that_depend_on_values_are_asked_for_each_time() -> None:
    with FakeTensorMode(shape_env=ShapeEnv()), Remembering():
        tensor = torch.zeros(4)
        counts = {str(tensor.clone().nonzero().shape[0]) for _ in range(3)}
        values = {str(tensor.clone().sum().item()) for _ in range(3)}
    assert len(counts) == len(values) == 3


def test_a_mode_that_knows_shapes_by_symbols_is_asked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeTensorMode(shape_env=ShapeEnv()), Remembering() as mode:
        seen = hits(mode.results, monkeypatch)
        counted = torch.zeros(4).nonzero()
        for _ in range(2):
            assert str((counted + 1).shape[0]) == str(counted.shape[0])
        assert not seen


def test_constants_keep_their_values() -> None:
    with remembering():
        assert [torch.tensor(float(number)).add(1).item() for number in range(3)] == [1.0, 2.0, 3.0]


def test_ops_of_others_are_asked_about_each_time() -> None:
    results: list[int] = []
    with torch.library._scoped_library("memplan_results", "DEF") as library:
        library.define("grow(Tensor x) -> Tensor")
        library.impl("grow", lambda x: x.new_empty(len(results) + 1), "Meta")
        library.impl("grow", lambda x: x.new_empty(1), "CPU")
        with remembering():
            for _ in range(3):
                results += torch.ops.memplan_results.grow(torch.empty(2)).shape
    assert results == [1, 2, 3]


@pytest.mark.parametrize(
    "state",
    [
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        lambda: torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.MATH]),
        lambda: torch.backends.mkldnn.flags(enabled=False),
        torch.no_grad,
    ],
    ids=["autocast", "attention", "mkldnn", "no grad"],
)
def test_a_switch_between_two_calls_is_minded(state: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
    network = torch.nn.functional
    with remembering(Checking), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        images, weight = torch.empty(2, 4, 6, 6), torch.empty(4, 4, 3, 3).contiguous(memory_format=torch.channels_last)
        for context in (contextlib.nullcontext, state, contextlib.nullcontext):
            with context():
                out = network.scaled_dot_product_attention(images, images, images)
                out = network.conv2d(out, weight) @ torch.empty(4, 5, dtype=out.dtype)
                network.layer_norm(out, (5,)).softmax(-1).sum()
                torch.addmm(torch.empty(4), torch.empty(4, 4), torch.empty(4, 4))


def test_what_a_deterministic_program_refuses_is_refused() -> None:
    values, indices = torch.float32, torch.int64
    with remembering():
        pooled = torch.empty(1, 2, 2, dtype=values), torch.empty(1, 2, 2, dtype=indices)
        aten.max_unpool2d(*pooled, [4, 4])
        torch.use_deterministic_algorithms(True)
        try:
            with pytest.raises(RuntimeError, match="deterministic"):
                aten.max_unpool2d(*pooled, [4, 4])
        finally:
            torch.use_deterministic_algorithms(False)


# --------------------------------------------------------------------------- modes


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


def test_tensors_of_another_mode_are_asked_about_each_time() -> None:
    with FakeTensorMode():
        foreign = torch.empty(3)
    with remembering(Checking):
        for tensor in (torch.empty(3), foreign, foreign):
            tensor.add(1)
            tensor.view(3, 1)
            tensor.add_(1)


def test_a_wrapper_is_left_to_its_own_rules() -> None:
    """Its own dispatch sees each call; what is inside goes through the memory."""

    class Wrapper(torch.Tensor):
        calls = 0

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            cls.calls += 1
            return func(*(each.inner if isinstance(each, Wrapper) else each for each in args), **kwargs or {})

    with remembering():
        inner = torch.empty(3)
        wrapper = torch.Tensor._make_wrapper_subclass(Wrapper, inner.shape, dtype=inner.dtype)
        wrapper.inner = inner
        for count in (1, 2):
            assert (wrapper + 1).shape == (3,)
            assert Wrapper.calls == count


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
