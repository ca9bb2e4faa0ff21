"""Captured inference graphs with every intermediate at a planned offset: equal to eager, bit for bit."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_structure

from memplan.errors import UsageError
from memplan.plan.reuse.arena import plan_graph
from memplan.runtime.arena.capture import capture
from memplan.runtime.arena.graph import GraphArena, OverlapError
from memplan.runtime.arena.out_variants import out_overload
from tests.tracing.real_memory import real_allocations


class Skips(nn.Module):
    """A small U-net: concatenations, strided and transposed convolutions, group norm, an in-place activation."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.middle = nn.Conv2d(8, 8, 3, padding=1)
        self.up = nn.ConvTranspose2d(16, 4, 2, stride=2)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        low = nn.functional.silu(self.norm(self.down(x)), inplace=True)
        middle = self.middle(low).add_(1.0)
        found = self.up(torch.cat([low, middle], dim=1))
        return {"picture": found, "mean": found.mean((2, 3)), "corner": middle[:, :, :2, :2]}


class Views(nn.Module):
    """Views of inputs, parameters and intermediates; an input and a parameter that come straight back."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 4))

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a, b = (x @ self.weight).t().contiguous().split(2)
        c = a.unsqueeze(0).expand(3, -1, -1) * scale + b
        return c.transpose(0, 1).flatten(1), x[1:], self.weight, torch.softmax(c, -1).sum(0)


def transformer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 5),
    )  # fmt: skip


def embedding() -> nn.Module:
    return nn.Sequential(nn.Embedding(20, 16), nn.LayerNorm(16), nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "skips": (Skips, lambda: (torch.randn(2, 3, 16, 16),)),
    "transformer": (transformer, lambda: (torch.randn(2, 8, 32),)),
    "convolutions": (convolutions, lambda: (torch.randn(2, 3, 16, 16),)),
    "channels last": (
        lambda: convolutions().to(memory_format=torch.channels_last),
        lambda: (torch.randn(2, 3, 16, 16).to(memory_format=torch.channels_last),),
    ),
    "embedding": (embedding, lambda: (torch.randint(0, 20, (3, 7)),)),
}


def equal(one: object, other: object) -> bool:
    return all(torch.equal(a, b) for a, b in zip(tree_leaves(one), tree_leaves(other), strict=True))


@pytest.fixture(autouse=True)
def _no_fused_layers() -> Iterator[None]:
    """``torch.export`` leaves nn.TransformerEncoderLayer's fused way of inference out, which rounds otherwise."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(before)


@pytest.mark.parametrize("guard", [False, True], ids=["plain", "guarded"])
@pytest.mark.parametrize("name", MODELS)
def test_equal_to_eager_on_other_inputs_too(name: str, guard: bool) -> None:
    torch.manual_seed(0)
    make, inputs = MODELS[name]
    model = make().eval()
    arena = plan_graph(model, *inputs(), guard=guard)
    for _ in range(3):
        given = inputs()
        with torch.no_grad():
            expected = model(*given)
        found = arena(*given)
        assert equal(found, expected)
        kept = [leaf.clone() for leaf in tree_leaves(found)]
        arena(*inputs())
        assert equal(found, kept)  # Results are the caller's own.


def test_views_and_what_comes_straight_back() -> None:
    torch.manual_seed(0)
    model = Views().eval()
    x, scale = torch.randn(5, 6), torch.randn(5)
    arena = plan_graph(model, x, scale=scale, guard=True)
    with torch.no_grad():
        assert equal(arena(x, scale), model(x, scale=scale))
    assert not arena.copied


def test_only_inputs_results_and_ops_that_cannot_write_elsewhere_allocate() -> None:
    torch.manual_seed(0)
    model, x = (
        nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(4))).eval(),
        torch.randn(32, 64),
    )
    arena = plan_graph(model, x)
    assert not arena.copied
    assert [nbytes for nbytes in real_allocations(lambda: arena(x)) if nbytes > 0] == [x.nbytes]
    with torch.no_grad():
        eager = sum(nbytes for nbytes in real_allocations(lambda: model(x)) if nbytes > 0)
    assert eager == 8 * x.nbytes
    assert arena.height == 2 * x.nbytes


def test_the_guard_sees_an_overlap() -> None:
    torch.manual_seed(0)
    captured = capture(Skips().eval(), (torch.randn(2, 3, 16, 16),))
    everything_at_the_floor = dict.fromkeys((buffer.root for buffer in captured.buffers), 0)
    height = max(buffer.nbytes for buffer in captured.buffers)
    with pytest.raises((OverlapError, RuntimeError), match=r"overwritten|single memory location|overlap"):
        GraphArena(captured, everything_at_the_floor, height, guard=True)(torch.randn(2, 3, 16, 16))


@pytest.mark.parametrize("pair", [0, 1, 2])
def test_the_guard_sees_any_two_that_share_bytes(pair: int) -> None:
    """Each pair of results that are alive together, one laid on the other."""

    class Sums(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            a, b, c = x + 1, x + 2, x + 3
            return (a * b * c).sum()

    captured = capture(Sums().eval(), (torch.randn(128),))
    a, b, c, *others = captured.buffers
    offsets = {buffer.root: 512 * index for index, buffer in enumerate(captured.buffers)}
    one, other = [(a, b), (b, c), (a, c)][pair]
    offsets[other.root] = offsets[one.root]
    with pytest.raises(OverlapError):
        GraphArena(captured, offsets, 512 * (3 + len(others)), guard=True)(torch.randn(128))


def test_wrong_inputs_and_models_are_refused() -> None:
    model = nn.Linear(4, 4)
    with pytest.raises(UsageError, match="evaluation mode"):
        plan_graph(model, torch.randn(2, 4))
    arena = plan_graph(model.eval(), torch.randn(2, 4))
    with pytest.raises(UsageError, match="plan one per shape"):
        arena(torch.randn(1, 4))

    class Branches(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1 if x.sum() > 0 else x - 1

    with pytest.raises(UsageError, match=r"torch\.export refuses"):
        plan_graph(Branches().eval(), torch.randn(3))


def test_generated_out_overloads_are_not_taken_for_kernels() -> None:
    aten = torch.ops.aten
    assert out_overload(aten.addmm.default) is aten.addmm.out
    assert out_overload(aten.add.Tensor) is aten.add.out
    assert out_overload(aten.native_layer_norm.default) is None
    assert out_overload(aten.convolution.default) is None


class Calls(nn.Module):
    """Any function as a model, with a buffer that counts."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("count", torch.zeros(1))

    def forward(self, *inputs: torch.Tensor) -> object:
        return self.function(self.count, *inputs)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda _, x: x.add_(1) * 2, "writes into its inputs"),
        (lambda _, x: (x * 2, x[0].zero_())[0], "writes into its inputs"),
        (lambda _, x: x.nonzero(), "static graph"),
        (lambda _, x: x[x > 0], "static graph"),
        (lambda _, x: x * x.max().item(), "static graph"),
        (lambda _, x: torch.fft.fft(x).conj() * 2, "conjugated"),
        (lambda _, x: x.to_sparse().to_dense(), "sparse"),
    ],
    ids=["input", "view of an input", "shape by value", "mask", "number by value", "conjugated", "sparse"],
)
def test_what_would_be_wrong_in_an_arena_is_refused(function: Callable[..., object], said: str) -> None:
    x = torch.randn(3, 4)
    before = x.clone()
    with pytest.raises(UsageError, match=said):
        plan_graph(Calls(function).eval(), x)
    assert torch.equal(x, before)


def test_results_keep_their_structure() -> None:
    def function(_: torch.Tensor, x: torch.Tensor) -> dict[str, object]:
        y = x + 1
        return {"twice": (y, y), "alias": [x, x.view(4, 3)], "number": 3, "none": None, "ids": x.argmax(-1)}

    model, x = Calls(function).eval(), torch.randn(3, 4)
    found, expected = plan_graph(model, x, guard=True)(x), model(x)
    assert tree_structure(found) == tree_structure(expected)
    assert type(found) is dict
    assert type(found["alias"]) is list
    assert equal([leaf for leaf in tree_leaves(found) if isinstance(leaf, torch.Tensor)],
                 [leaf for leaf in tree_leaves(expected) if isinstance(leaf, torch.Tensor)])  # fmt: skip


def test_inputs_given_twice_or_spread_are_inputs_of_their_own() -> None:
    model, x = Calls(lambda _, x, y: x + y).eval(), torch.randn(1, 4).expand(3, 4)
    arena = plan_graph(model, x, x)
    one, other = torch.randn(3, 4), torch.randn(3, 4)
    assert torch.equal(arena(one, other), one + other)


def test_buffers_count_calls_and_not_captures() -> None:
    model = Calls(lambda count, x: x + count.add_(1)).eval()
    arena = plan_graph(model, torch.zeros(2), guard=True)
    assert model.count.item() == 0
    assert [arena(torch.zeros(2)).tolist() for _ in range(2)] == [[1, 1], [2, 2]]
    assert model.count.item() == 2


def test_modes_of_the_caller_change_nothing() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Conv2d(2, 3, 1), nn.Softmax(1)).eval(), torch.randn(2, 2, 4, 4)
    with torch.inference_mode():
        expected = model(x)
        arena = plan_graph(model, x)
    assert torch.equal(arena(x), expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(arena(x), expected)
        assert torch.equal(plan_graph(model, x)(x), model(x))
