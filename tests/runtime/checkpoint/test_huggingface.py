"""Models of transformers under plans: caches, masks, position biases, dropout, encoder and decoder."""

from typing import Any

import pytest
import torch

import memplan
from memplan.runtime.checkpoint.blocks import repeated_blocks
from memplan.runtime.checkpoint.mismatch import PlanMismatch
from memplan.runtime.checkpoint.records import Action, BlockPlan, CheckpointPlan, Segment
from tests.runtime.checkpoint.chains import assert_equal
from tests.runtime.checkpoint.library import CACHE, MODELS, SAVED, TOKENS, seeded, step, transformers


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("action", [Action.CHECKPOINT, Action.SELECTIVE, Action.OFFLOAD])
def test_a_step_is_equal(name: str, action: Action) -> None:
    plain, planned = seeded(name), seeded(name)
    saved = (SAVED[name],) if action is Action.SELECTIVE else ()
    names = repeated_blocks(planned)
    assert len(names) == (6 if name == "t5" else 4)
    blocks = tuple(BlockPlan(module=block, action=action, saved=saved) for block in names)
    memplan.apply(planned, CheckpointPlan(blocks=blocks))
    for _ in range(2):
        assert_equal(step(planned), step(plain))


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_segments(name: str) -> None:
    plain, planned = seeded(name), seeded(name)
    names = repeated_blocks(planned)
    blocks = (BlockPlan(module=names[1], action=Action.SELECTIVE, saved=(SAVED[name],)),)
    segments = (Segment(modules=names), Segment(modules=names[:2]))
    memplan.apply(planned, CheckpointPlan(blocks=blocks, segments=segments))
    for _ in range(2):
        assert_equal(step(planned), step(plain))


def test_a_first_layer_that_makes_the_position_bias_cannot_begin_a_segment_but_the_second_can() -> None:
    names = repeated_blocks(seeded("t5"))
    first, later = names[:3], names[1:3]
    planned = seeded("t5")
    memplan.apply(planned, CheckpointPlan(blocks=(), segments=(Segment(modules=first),)))
    with pytest.raises(PlanMismatch):
        step(planned)
    planned, plain = seeded("t5"), seeded("t5")
    memplan.apply(planned, CheckpointPlan(blocks=(), segments=(Segment(modules=later), Segment(modules=names[4:6]))))
    for _ in range(2):
        assert_equal(step(planned), step(plain))


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_cache_with_content_is_read_and_not_written(name: str) -> None:
    # A prefix that is itself trained, as prefix tuning has it.
    found = []
    for is_planned in (False, True):
        model = seeded(name).eval()
        heads, width = (2, 8) if name == "gpt2" else (1, 8)
        prefix = [
            (
                torch.randn(2, heads, 3, width, generator=torch.Generator().manual_seed(layer)).requires_grad_(),
                torch.randn(2, heads, 3, width, generator=torch.Generator().manual_seed(9 + layer)).requires_grad_(),
            )
            for layer in range(4)
        ]
        cache = transformers.DynamicCache()
        for layer, (keys, values) in enumerate(prefix):
            cache.update(keys, values, layer)
        if is_planned:
            blocks = tuple(BlockPlan(module=block, action=Action.CHECKPOINT) for block in repeated_blocks(model))
            memplan.apply(model, CheckpointPlan(blocks=blocks))
        output = model(input_ids=TOKENS, **{CACHE: cache})
        output.logits.pow(2).mean().backward()
        gradients = {f"{layer} {part}": pair[part].grad for layer, pair in enumerate(prefix) for part in (0, 1)}
        found.append({"logits": output.logits.detach()} | gradients)
        assert cache.get_seq_length() == (3 if is_planned else 15)
    assert_equal(found[1], found[0])


@pytest.mark.parametrize("name", MODELS)
def test_generation_uses_its_cache(name: str) -> None:
    plain, planned = seeded(name).eval(), seeded(name).eval()
    names = repeated_blocks(planned)
    blocks = tuple(BlockPlan(module=block, action=Action.CHECKPOINT) for block in names)
    memplan.apply(planned, CheckpointPlan(blocks=blocks, segments=(Segment(modules=names[1:3]),)))
    length: dict[str, Any] = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
    widths: list[int] = []
    planned.get_submodule(names[-1]).register_forward_pre_hook(
        lambda _, args, kwargs: widths.append((args[0] if args else kwargs["hidden_states"]).shape[1]),
        with_kwargs=True,
    )
    assert torch.equal(planned.generate(TOKENS, **length), plain.generate(TOKENS, **length))
    assert widths[1:] == [1, 1, 1]


@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")
@pytest.mark.parametrize("name", MODELS)
def test_its_own_checkpointing_is_refused_before_and_after(name: str) -> None:
    plain, planned = seeded(name), seeded(name)
    plan = CheckpointPlan(
        blocks=tuple(BlockPlan(module=block, action=Action.CHECKPOINT) for block in repeated_blocks(planned))
    )
    planned.gradient_checkpointing_enable()
    with pytest.raises(PlanMismatch, match="own checkpointing"):
        memplan.apply(planned, plan)
    planned.gradient_checkpointing_disable()
    memplan.apply(planned, plan)
    planned.gradient_checkpointing_enable()
    with pytest.raises(PlanMismatch, match="own checkpointing"):
        step(planned)
    planned.gradient_checkpointing_disable()
    assert_equal(step(planned), step(plain))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("action", [Action.CHECKPOINT, Action.SELECTIVE, Action.OFFLOAD, None])
def test_hidden_states_may_enter_the_loss(name: str, action: Action | None) -> None:
    found = []
    for is_planned in (False, True):
        model = seeded(name)
        names = repeated_blocks(model)
        saved = (SAVED[name],) if action is Action.SELECTIVE else ()
        if is_planned and action is not None:
            blocks = tuple(BlockPlan(module=block, action=action, saved=saved) for block in names)
            memplan.apply(model, CheckpointPlan(blocks=blocks))
        elif is_planned:
            memplan.apply(model, CheckpointPlan(blocks=(), segments=(Segment(modules=names[1:3]),)))
        torch.manual_seed(3)
        output = model(input_ids=TOKENS, labels=TOKENS, output_hidden_states=True)
        states = output.encoder_hidden_states if name == "t5" else output.hidden_states
        assert len(states) == (4 if name == "t5" else 5)
        (output.loss + sum(state.pow(2).mean() for state in states)).backward()
        found.append({key: parameter.grad for key, parameter in model.named_parameters()})
    assert_equal(found[1], found[0])
