"""Segments: what a parent may do between the calls of its blocks, and what is refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import memplan
from memplan.runtime.checkpoint.mismatch import PlanMismatch
from memplan.runtime.checkpoint.records import Action, CheckpointPlan
from tests.runtime.checkpoint.chains import (
    PLANS,
    WIDTH,
    Block,
    Chain,
    assert_equal,
    blocks,
    pair,
    rows,
    seeded,
    segment,
    step,
)

ALL = CheckpointPlan(blocks=(), segments=(segment(0, 1, 2, 3),))


class Wide(nn.Module):
    """Returns a tuple, takes several arguments, and passes one of them on."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(
        self, x: torch.Tensor, bias: torch.Tensor, flags: Any, *, scale: float = 1.0, mask: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, None]:
        return torch.tanh(self.linear(x) * scale + bias + (0 if mask is None else mask)), bias, None


def looped(loop: Callable[[nn.ModuleList, torch.Tensor], torch.Tensor], block: Callable[[], nn.Module] = Block) -> type:
    """A chain with another loop."""

    class Looped(Chain):
        def __init__(self) -> None:
            super().__init__(4, block)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(loop(self.layers, self.embed(x)))

    return Looped


def tuples(layers: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    bias, flags, mask = x.mean(0), object(), x > 0
    for layer in layers:
        x, bias, _ = layer(x, bias, flags, scale=0.5, mask=mask)
    return x


def keywords(layers: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    for layer in layers:
        x = layer(x=x, scale=0.5)
    return x


def sequential(layers: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    for layer in layers[:2]:
        x = layer(x)
    y = x.cos()
    for layer in layers[2:]:
        y = layer(y)
    return y + x


NESTED = CheckpointPlan(
    blocks=blocks(Action.CHECKPOINT, 1),
    segments=(segment(0, 1, 2, 3), segment(0, 1, 2), segment(0, 1)),
)


@pytest.mark.parametrize("plan", [ALL, NESTED], ids=["one", "nested"])
@pytest.mark.parametrize("build", [looped(tuples, Wide), looped(keywords)], ids=["tuples", "keywords"])
def test_blocks_may_return_tuples_and_take_keywords(build: Callable[[], nn.Module], plan: CheckpointPlan) -> None:
    plain, planned = pair(build, plan)
    for _ in range(2):
        assert_equal(step(planned), step(plain))


def test_segments_end_where_the_parent_does_something_else() -> None:
    plan = CheckpointPlan(blocks=(), segments=(segment(0, 1), segment(2, 3)))
    plain, planned = pair(looped(sequential), plan)
    assert_equal(step(planned), step(plain))


def test_a_sequential_is_a_parent() -> None:
    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Sequential(Block(), Block(), Block()), nn.Linear(WIDTH, 1))

    plain, planned = seeded(build), seeded(build)
    from_here = CheckpointPlan(blocks=(), segments=(type(segment(0))(modules=("1.0", "1.1", "1.2")),))
    memplan.apply(planned, from_here)
    assert_equal(step(planned), step(plain))


def test_a_segment_inside_a_checkpointed_parent() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Chain()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)

    inside = CheckpointPlan(
        blocks=(
            type(PLANS["checkpoint"].blocks[0])(module="inner", action=Action.CHECKPOINT),
            type(PLANS["checkpoint"].blocks[0])(
                module="inner.layers.1", action=Action.SELECTIVE, saved=PLANS["selective"].blocks[0].saved
            ),
        ),
        segments=(type(segment(0))(modules=("inner.layers.0", "inner.layers.1", "inner.layers.2")),),
    )
    plain, planned = pair(Outer, inside)
    for _ in range(2):
        assert_equal(step(planned), step(plain))


def _skips(layers: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    first = layers[0](x)
    return layers[3](layers[2](layers[1](first))) + first


def _reads_shape(layers: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    for layer in layers:
        x = layer(x).reshape(x.shape)
    return x


def _changes_between(layers: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    for layer in layers:
        x = torch.relu(layer(x))
    return x


def _leaves_early(layers: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    return layers[2](layers[1](layers[0](x)))


def _leaves_out(layers: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    layers[1](layers[0](x))
    return x


def _leaves_out_the_first(layers: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    return layers[2](layers[1](x))


def _turns_round(layers: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    return layers[3](layers[1](layers[2](layers[0](x))))


def _other_argument(layers: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    for index, layer in enumerate(layers):
        x = layer(x, scale=float(index))
    return x


def _more_arguments(layers: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    for index, layer in enumerate(layers):
        x = layer(x, **({"scale": 0.5} if index else {}))
    return x


def _other_input(layers: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    layers[0](x)
    return layers[1](x.clone())


@pytest.mark.parametrize(
    ("loop", "reason"),
    [
        (_skips, r"layers\.0 … layers\.3 cannot run again as one: the model uses a hidden state inside it"),
        (_reads_shape, "uses a hidden state inside it"),
        (_changes_between, r"uses a hidden state inside it \(relu\)"),
        (_leaves_early, r"uses a hidden state inside it \(linear\)"),
        (_leaves_out, r"layers\.2 .* the model left it out"),
        (_leaves_out_the_first, r"layers\.1 .* it ran without layers\.0"),
        (_turns_round, r"layers\.2 .* out of the order"),
        (_other_argument, r"layers\.1 .* its scale is not the first block's"),
        (_more_arguments, r"layers\.1 .* more or fewer arguments"),
        (_other_input, r"layers\.1 .* its argument 0 is not what the block before it returned"),
    ],
)
def test_a_parent_that_a_segment_cannot_serve_is_told(loop: Callable[..., torch.Tensor], reason: str) -> None:
    model = seeded(looped(loop))
    with memplan.apply(model, ALL):
        with pytest.raises(PlanMismatch, match=reason):
            model(rows())
        # One wrong forward does not spoil the next.
        with pytest.raises(PlanMismatch, match=reason):
            model(rows())
        with torch.no_grad():
            model(rows())
    assert torch.isfinite(model(rows())).all()


class Talkative(Block):
    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> Any:
        return super().forward(x, scale=scale), x.mean()


class Named(Block):
    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> Any:
        return {"hidden": super().forward(x, scale=scale)}


def _firsts(layers: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    for layer in layers:
        x = layer(x)[0]
    return x


def _hiddens(layers: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    for layer in layers:
        x = layer(x)["hidden"]
    return x


@pytest.mark.parametrize(
    ("loop", "block", "reason"),
    [
        (_firsts, Talkative, r"layers\.1 returns something of its own"),
        (_hiddens, Named, r"the block before layers\.1 returns dict"),
    ],
)
def test_results_that_cannot_be_passed_on_are_told(
    loop: Callable[..., torch.Tensor], block: type[nn.Module], reason: str
) -> None:
    model = seeded(looped(loop, block))
    memplan.apply(model, ALL)
    with pytest.raises(PlanMismatch, match=reason):
        model(rows())


def test_a_forward_that_fails_does_not_spoil_the_next() -> None:
    plain, planned = pair(Chain, ALL)
    handle = planned.head.register_forward_pre_hook(lambda *_: 1 / 0)
    failing = planned.layers[1].register_forward_pre_hook(lambda *_: 1 / 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            planned(rows())
    failing.remove()
    with pytest.raises(ZeroDivisionError):
        planned(rows())
    handle.remove()
    plain.train()
    expected = step(plain)
    # Statistics of the failed forwards aside.
    found = step(planned)
    assert torch.equal(found["loss"], expected["loss"])


def test_hooks_of_the_blocks_see_real_tensors_in_order() -> None:
    model, seen = seeded(Chain), []
    for index, layer in enumerate(model.layers):
        layer.register_forward_hook(lambda _, __, output, index=index: seen.append((index, output.shape)))
    memplan.apply(model, ALL)
    loss = model(rows()).mean()
    assert [index for index, _ in seen] == [0, 1, 2, 3]
    assert {shape for _, shape in seen} == {rows().shape}
    loss.backward()
    assert [index for index, _ in seen] == [0, 1, 2, 3, 0, 1, 2]


def test_a_compiled_block_is_refused() -> None:
    model = Chain()
    model.layers[1].compile(backend="eager")
    with pytest.raises(PlanMismatch, match=r"layers\.1 is compiled"):
        memplan.apply(model, ALL)


def test_one_module_twice_is_refused() -> None:
    model = Chain()
    model.layers[1] = model.layers[0]
    with pytest.raises(PlanMismatch, match="runs one module twice"):
        memplan.apply(model, ALL)
