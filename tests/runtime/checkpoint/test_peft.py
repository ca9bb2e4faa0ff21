"""Low-rank adapters of peft, put on before and after the plan."""

from typing import Any

import pytest
import torch

import memplan
from memplan.runtime.checkpoint.blocks import repeated_blocks
from memplan.runtime.checkpoint.records import Action, BlockPlan, CheckpointPlan, Segment
from tests.runtime.checkpoint.chains import assert_equal
from tests.runtime.checkpoint.library import SAVED, seeded, step

# Importing peft takes long, and warns of the packages that it does without.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

PLACES = ("before", "after", "on the base")


def adapted(plan: CheckpointPlan | None, place: str) -> Any:
    peft = pytest.importorskip("peft")
    model = seeded("llama")
    if plan is not None and place == "before":
        memplan.apply(model, plan)
    config = peft.LoraConfig(
        r=4, target_modules=["q_proj", "down_proj"], lora_dropout=0.1, init_lora_weights=False, task_type="CAUSAL_LM"
    )
    torch.manual_seed(5)
    found = peft.get_peft_model(model, config)
    if plan is not None and place == "on the base":
        memplan.apply(model, plan)
    return found


def plan_for(names: tuple[str, ...]) -> CheckpointPlan:
    return CheckpointPlan(
        blocks=(
            BlockPlan(module=names[0], action=Action.CHECKPOINT),
            BlockPlan(module=names[1], action=Action.SELECTIVE, saved=(SAVED["llama"],)),
        ),
        segments=(Segment(modules=names[2:]),),
    )


@pytest.mark.parametrize("place", PLACES)
def test_a_step_is_equal(place: str) -> None:
    plain = adapted(None, place)
    if place == "after":
        planned = adapted(None, place)
        names = repeated_blocks(planned)
        assert all(name.startswith("base_model.model.") for name in names)
        memplan.apply(planned, plan_for(names))
    else:
        planned = adapted(plan_for(repeated_blocks(plain.get_base_model())), place)
    for _ in range(2):
        found, expected = (
            {name: value for name, value in step(model).items() if value is not None} for model in (planned, plain)
        )
        # Loss, logits, and both matrices of the adapters alone.
        assert len(expected) == 2 + 4 * 2 * 2
        assert_equal(found, expected)
    assert_equal(dict(planned.merge_and_unload().state_dict()), dict(plain.merge_and_unload().state_dict()))
