"""Blocks: which repeat, what a pattern names, and whether a model is the one that a plan was made for."""

from collections.abc import Callable

import pytest
from torch import nn

import memplan
from memplan.runtime.checkpoint.blocks import fingerprint, modules_named, repeated_blocks
from memplan.runtime.checkpoint.mismatch import PlanMismatch
from memplan.runtime.checkpoint.records import Action, BlockPlan, CheckpointPlan
from tests.runtime.checkpoint.chains import WIDTH, Block, Chain


def staged() -> nn.Module:
    """A stem, two stages of two blocks each, a head: as residual networks are built."""
    stages = (nn.Sequential(Block(), Block()) for _ in range(2))
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), *stages, nn.Linear(WIDTH, 1))


def by_name() -> nn.Module:
    model = nn.Module()
    model.parts = nn.ModuleDict({"left": Block(), "right": Block(), "other": Chain(3)})
    return model


def encoder() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, 2, batch_first=True), 2)


@pytest.mark.parametrize(
    ("build", "names"),
    [
        (Chain, ["layers.0", "layers.1", "layers.2", "layers.3"]),
        (staged, ["1.0", "1.1", "2.0", "2.1"]),
        (
            by_name,
            ["parts.left", "parts.right", "parts.other.layers.0", "parts.other.layers.1", "parts.other.layers.2"],
        ),
        (encoder, ["layers.0", "layers.1"]),
        (lambda: nn.ModuleList([Chain(2), Chain(2)]), ["0", "1"]),
        (lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU()), []),
    ],
)
def test_repeated_blocks_are_found(build: Callable[[], nn.Module], names: list[str]) -> None:
    assert list(repeated_blocks(build())) == names


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["layers.2", "layers.0"], ["layers.2", "layers.0"]),
        (["layers.*"], ["layers.0", "layers.1", "layers.2", "layers.3"]),
        (["layers.[13].norm"], ["layers.1.norm", "layers.3.norm"]),
        (["layers.0.*r*"], ["layers.0.norm", "layers.0.narrow", "layers.0.dropout"]),
        (["layers.1", "layers.?"], ["layers.1", "layers.0", "layers.2", "layers.3"]),
        # A star stands for no dot, and a list of modules is passed over where others match.
        (["*"], ["embed", "head"]),
    ],
)
def test_patterns_name_modules(patterns: list[str], names: list[str]) -> None:
    assert list(modules_named(Chain(), patterns)) == names


def test_everything_unknown_is_named_with_its_neighbours() -> None:
    with pytest.raises(PlanMismatch, match=r"Chain has no module layer\.1, heads, x\.\*") as error:
        modules_named(Chain(), ["layers.0", "layer.1", "heads", "x.*"])
    assert error.value.hint is not None
    assert "layers.1" in error.value.hint
    assert "head" in error.value.hint


def _made_for(model: nn.Module) -> CheckpointPlan:
    names = repeated_blocks(model)
    blocks = tuple(BlockPlan(module=name, action=Action.CHECKPOINT) for name in names)
    return CheckpointPlan(blocks=blocks, fingerprint=fingerprint(model, names))


def test_a_plan_fits_the_model_that_it_was_made_for() -> None:
    plan = _made_for(Chain())
    memplan.apply(Chain().bfloat16(), plan)
    assert plan.fingerprint is not None
    assert plan.fingerprint.parameters == sum(parameter.numel() for parameter in Chain().parameters())


def _wider(model: Chain) -> None:
    model.layers[2].wide = nn.Linear(WIDTH, 5 * WIDTH)


def _transposed(model: Chain) -> None:
    model.layers[1].wide, model.layers[1].narrow = model.layers[1].narrow, model.layers[1].wide


def _other_class(model: Chain) -> None:
    model.layers[0].dropout = nn.AlphaDropout()


def _shorter(model: Chain) -> None:
    del model.layers[3]


def _tied(model: Chain) -> None:
    model.layers[0].wide.weight = model.layers[1].wide.weight


@pytest.mark.parametrize(
    ("change", "reasons"),
    [
        (_wider, ["layers.2: 2,528 parameters, planned 2,256", "parameters, the plan was made for"]),
        (_transposed, ["layers.1: other modules or shapes"]),
        (_other_class, ["layers.0: other modules or shapes"]),
        (_shorter, ["Chain has no module layers.3"]),
        (_tied, ["the plan was made for 9,313"]),
    ],
)
def test_a_changed_model_is_refused_with_the_reason(change: Callable[[Chain], None], reasons: list[str]) -> None:
    plan = _made_for(Chain())
    model = Chain()
    change(model)
    with pytest.raises(PlanMismatch) as error:
        memplan.apply(model, plan)
    for reason in reasons:
        assert reason in error.value.what


def test_another_class_is_refused() -> None:
    class Other(Chain):
        pass

    with pytest.raises(PlanMismatch, match=r"it is a .*Other, the plan was made for a Chain"):
        memplan.apply(Other(), _made_for(Chain()))
