"""Plans come into force, leave no trace in names and states, travel with copies, and are taken back."""

import copy
import inspect
import io
import pickle
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch import nn

import memplan
from memplan.errors import UsageError
from memplan.runtime.checkpoint.apply import remove
from memplan.runtime.checkpoint.blocks import fingerprint
from memplan.runtime.checkpoint.mismatch import PlanMismatch
from memplan.runtime.checkpoint.plan_file import write_plan
from memplan.runtime.checkpoint.records import Action, BlockPlan, CheckpointPlan
from tests.runtime.checkpoint.chains import EVERY, PLANS, Chain, Plain, assert_equal, blocks, pair, rows, seeded, step

each_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)


@each_plan
def test_hooks_of_a_block_see_its_result(plan: CheckpointPlan) -> None:
    planned = pair(Chain, plan)[1]
    seen: list[torch.Tensor] = []
    planned.layers[3].register_forward_hook(lambda _, __, output: seen.append(output))
    planned.head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    step(planned)
    assert seen[0] is seen[1]


@each_plan
def test_all_is_as_before_once_removed(plan: CheckpointPlan) -> None:
    plain, model = seeded(Chain), seeded(Chain)
    before = {name: dict(module.__dict__) for name, module in model.named_modules()}
    with memplan.apply(model, plan):
        assert any(module.__dict__ != before[name] for name, module in model.named_modules())
    assert {name: dict(module.__dict__) for name, module in model.named_modules()} == before
    assert_equal(step(model), step(plain))


def test_a_forward_that_somebody_else_replaced_is_kept() -> None:
    model = seeded(Chain)
    original = model.layers[0].forward
    own = lambda *inputs, **keywords: 2 * original(*inputs, **keywords)  # noqa: E731
    model.layers[0].forward = own
    twin = seeded(Chain)
    twin_original = twin.layers[0].forward
    twin.layers[0].forward = lambda *inputs, **keywords: 2 * twin_original(*inputs, **keywords)
    with memplan.apply(model, PLANS["checkpoint"]):
        assert_equal(step(model), step(twin))
    assert model.layers[0].forward is own


def test_applying_twice_is_refused() -> None:
    model = Chain()
    applied = memplan.apply(model, PLANS["checkpoint"])
    with pytest.raises(UsageError, match="already in force"):
        memplan.apply(model, PLANS["checkpoint"])
    applied.remove()
    applied.remove()
    memplan.apply(model, PLANS["selective"])


@each_plan
def test_names_and_states_do_not_change(plan: CheckpointPlan) -> None:
    plain, planned = pair(Chain, plan)
    assert list(planned.state_dict()) == list(plain.state_dict())
    assert [name for name, _ in planned.named_modules()] == [name for name, _ in plain.named_modules()]
    step(plain)
    planned.load_state_dict(plain.state_dict())
    plain.zero_grad()
    assert_equal(step(planned), step(plain))


def saved_and_loaded(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded: nn.Module = torch.load(file, weights_only=False)
    return loaded


@each_plan
@pytest.mark.parametrize(
    "copied",
    [
        copy.deepcopy,
        lambda model: pickle.loads(pickle.dumps(model)),
        saved_and_loaded,
    ],
    ids=["deepcopy", "pickle", "torch.save"],
)
def test_a_copy_has_the_plan_and_a_life_of_its_own(
    plan: CheckpointPlan, copied: Callable[[nn.Module], nn.Module]
) -> None:
    plain, planned = pair(Chain, plan)
    twin = copied(planned)
    saved = [_saved_bytes(model) for model in (planned, twin, plain)]
    assert saved[0] == saved[1] < saved[2]
    twin.zero_grad(), plain.zero_grad()
    twin.load_state_dict(plain.state_dict())
    untouched = [parameter.grad.clone() for parameter in planned.parameters()]
    assert_equal(step(twin), step(plain))
    assert all(map(torch.equal, untouched, (parameter.grad for parameter in planned.parameters())))
    remove(twin)
    assert _saved_bytes(twin) == saved[2]


def _saved_bytes(model: nn.Module) -> int:
    """Bytes of what autograd itself keeps between forward and backward."""
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = model(rows()).mean()
    loss.backward()
    return sum(kept.values())


def test_the_second_run_has_its_context() -> None:
    model, seen = Chain(), []

    class Context(nullcontext):
        def __init__(self, module: nn.Module) -> None:
            self.module = module

        def __enter__(self) -> None:
            seen.append(self.module)

    plan = CheckpointPlan(blocks=(*blocks(Action.CHECKPOINT, 0, 1), *blocks(Action.SELECTIVE, 2, 3)))
    memplan.apply(model, plan, recomputing=Context)
    loss = model(rows()).mean()
    assert seen == []
    loss.backward()
    assert seen == [model.layers[index] for index in reversed(EVERY)]


def test_patterns_and_paths(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text('{"modules": ["layers.*"]}')
    planned = seeded(Chain)
    applied = memplan.apply(planned, path)
    assert [block.module for block in applied.blocks] == [f"layers.{index}" for index in EVERY]
    assert_equal(step(planned), step(seeded(Chain)))
    write_plan(PLANS["mixed"], path)
    applied.remove()
    assert memplan.apply(planned, str(path)).plan == PLANS["mixed"]


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (CheckpointPlan(blocks=blocks(Action.CHECKPOINT, 9)), r"no module layers\.9"),
        (
            CheckpointPlan(blocks=(BlockPlan(module="layers", action=Action.CHECKPOINT),)),
            "layers only holds modules and is never called",
        ),
        (CheckpointPlan(blocks=(BlockPlan(module="nothing.*", action=Action.KEEP),)), r"no module nothing\.\*"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused_and_nothing_is_changed(plan: CheckpointPlan, reason: str) -> None:
    model = Chain()
    before = {name: dict(module.__dict__) for name, module in model.named_modules()}
    with pytest.raises(PlanMismatch, match=reason):
        memplan.apply(model, plan)
    assert {name: dict(module.__dict__) for name, module in model.named_modules()} == before


def test_patterns_that_name_modules_inside_each_other_are_checked() -> None:
    inside = (
        BlockPlan(module="layers.*", action=Action.OFFLOAD),
        BlockPlan(module="layers.1.wide", action=Action.CHECKPOINT),
    )
    with pytest.raises(UsageError, match=r"layers\.1\.wide \(checkpoint\) stands inside layers\.1 \(offload\)"):
        memplan.apply(Chain(), CheckpointPlan(blocks=inside))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@each_plan
def test_under_compile_what_runs_again_runs_eagerly(plan: CheckpointPlan) -> None:
    plain, planned = pair(lambda: Chain(4, Plain), plan)
    torch.compiler.reset()
    compiled = torch.compile(planned, backend="aot_eager")
    for _ in range(2):
        expected = step(plain)
        found = {name.removeprefix("_orig_mod."): value for name, value in step(compiled).items()}
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value)


@each_plan
def test_a_librarys_own_checkpointing_is_refused_whenever_it_is_turned_on(plan: CheckpointPlan) -> None:
    model = seeded(Chain)
    for owner in (model, model.layers[0], model.layers[3].wide):
        owner.gradient_checkpointing = True
        with pytest.raises(PlanMismatch, match=r"own checkpointing \(gradient_checkpointing is on"):
            memplan.apply(model, plan)
        owner.gradient_checkpointing = False
    memplan.apply(model, plan)
    step(model)


@pytest.mark.parametrize("name", ["checkpoint", "selective", "offload"])
def test_a_librarys_own_checkpointing_may_not_be_turned_on_later(name: str) -> None:
    planned = pair(Chain, PLANS[name])[1]
    planned.layers[2].gradient_checkpointing = True
    with pytest.raises(PlanMismatch, match=r"layers\.2 does its own"):
        planned(rows())
    with torch.no_grad():
        planned(rows())


def test_what_stands_beside_the_plan_may_checkpoint_itself() -> None:
    model = seeded(Chain)
    model.embed.gradient_checkpointing = model.layers[1].grad_checkpointing = True
    kept = BlockPlan(module="layers.1", action=Action.KEEP)
    memplan.apply(model, CheckpointPlan(blocks=(*blocks(Action.CHECKPOINT, 0, 2), kept)))
    step(model)


def test_a_module_with_two_names_is_wrapped_once() -> None:
    model = Chain()
    model.layers[2] = model.layers[0]
    applied = memplan.apply(model, CheckpointPlan(blocks=blocks(Action.CHECKPOINT, *EVERY)))
    assert [block.module for block in applied.blocks] == ["layers.0", "layers.1", "layers.3"]
    twin = seeded(Chain)
    twin.layers[2] = twin.layers[0]
    with pytest.raises(PlanMismatch, match="one module, planned in two ways"):
        memplan.apply(twin, CheckpointPlan(blocks=(*blocks(Action.CHECKPOINT, 0), *blocks(Action.OFFLOAD, 2))))


def test_signatures_stay_readable() -> None:
    model = Chain()
    expected = inspect.signature(model.layers[0].forward)
    memplan.apply(model, PLANS["segment"])
    assert inspect.signature(model.layers[0].forward) == expected
    assert list(inspect.signature(model.forward).parameters) == ["x"]


def test_a_made_plan_that_keeps_everything_is_a_plan(tmp_path: Path) -> None:
    plain, model = seeded(Chain), seeded(Chain)
    file = tmp_path / "plan.json"
    write_plan(CheckpointPlan(blocks=(), fingerprint=fingerprint(model, ["layers.0"])), file)
    with memplan.apply(model, file) as applied:
        assert applied.blocks == ()
        assert [module.__dict__.keys() for module in model.modules()] == [
            module.__dict__.keys() for module in plain.modules()
        ]
    with pytest.raises(PlanMismatch):
        memplan.apply(nn.Linear(2, 2), file)
