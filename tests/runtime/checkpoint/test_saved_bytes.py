"""What lives between forward and backward: nothing but what a plan says, seen by the storages themselves."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import memplan
from memplan.runtime.checkpoint.host import Returning
from memplan.runtime.checkpoint.mismatch import PlanMismatch
from memplan.runtime.checkpoint.records import Action, CheckpointPlan, SavedOp
from tests.runtime.checkpoint.chains import PLANS, Chain, Plain, blocks, rows, seeded, segment
from tests.runtime.checkpoint.saved import ROW, kept


def plain_kept(depth: int) -> int:
    return kept(seeded(lambda: Chain(depth, Plain)))


def planned_kept(plan: CheckpointPlan, depth: int = 4) -> int:
    model = seeded(lambda: Chain(depth, Plain))
    memplan.apply(model, plan)
    return kept(model)


# Outside blocks: the embedding's result is the first block's input; the head's input and nothing of its result.
# A plain block keeps its input, the cosine, the wide linear's result and its sine; the scaling keeps nothing.
A_PLAIN_BLOCK = (1 + 1 + 4 + 4) * ROW
LAST_RESULT = ROW


def test_the_count_itself() -> None:
    assert plain_kept(4) == 4 * A_PLAIN_BLOCK + LAST_RESULT


def test_a_checkpointed_block_keeps_its_input() -> None:
    assert planned_kept(PLANS["checkpoint"]) == 4 * ROW + LAST_RESULT


@pytest.mark.parametrize(
    ("saved", "size"),
    [
        ((SavedOp(op="aten.addmm.default", calls=(0,)),), 4 * ROW),
        ((SavedOp(op="aten.addmm.default", calls=(1,)),), ROW),
        ((SavedOp(op="aten.addmm.default", calls=(0, 1)), SavedOp(op="aten.cos.default", calls=(0,))), 6 * ROW),
    ],
)
def test_a_selective_block_keeps_its_input_and_what_is_planned(saved: tuple[SavedOp, ...], size: int) -> None:
    plan = CheckpointPlan(blocks=blocks(Action.SELECTIVE, 0, 1, 2, 3, saved=saved))
    assert planned_kept(plan) == 4 * (ROW + size) + LAST_RESULT


class Elsewhere:
    """A host that torch does not see."""

    def take(self, flat: torch.Tensor) -> Any:
        return flat.numpy().copy()

    def give(self, taken: Any) -> Returning:
        host = torch.from_numpy(taken)
        return Returning(torch.empty_like(host).copy_(host))


@pytest.mark.parametrize("name", ["offload", "prefetch"])
def test_an_offloaded_block_keeps_nothing_on_the_device(name: str) -> None:
    model = seeded(lambda: Chain(4, Plain))
    memplan.apply(model, PLANS[name], host=Elsewhere())
    assert kept(model) == LAST_RESULT


def test_a_segment_keeps_its_first_input() -> None:
    assert planned_kept(CheckpointPlan(blocks=(), segments=(segment(0, 1, 2, 3),))) == ROW + LAST_RESULT
    assert planned_kept(CheckpointPlan(blocks=(), segments=(segment(1, 2),))) == 2 * A_PLAIN_BLOCK + ROW + LAST_RESULT


def test_what_stands_in_a_segment_keeps_nothing_before_it_runs_again() -> None:
    everything = CheckpointPlan(
        blocks=(*blocks(Action.SELECTIVE, 0, 1), *blocks(Action.CHECKPOINT, 2)),
        segments=(segment(0, 1, 2, 3), segment(0, 1)),
    )
    assert planned_kept(everything) == ROW + LAST_RESULT


def runs(model: nn.Module) -> list[int]:
    """How often the first op of each block runs in a step."""
    counts = [0] * len(model.layers)
    for index, layer in enumerate(model.layers):
        layer.wide.register_forward_pre_hook(lambda *_, index=index: counts.__setitem__(index, counts[index] + 1))
    model(rows()).mean().backward()
    return counts


def test_nested_segments_run_as_the_optimal_recursion_does() -> None:
    # Of eight blocks, the first four form a segment of two, each a segment of two. Every second run stops where the
    # last block inside would begin (its input is what was missing), so that only the first two run a third time.
    model = Chain(8, Plain)
    plan = CheckpointPlan(blocks=(), segments=(segment(0, 1, 2, 3), segment(0, 1), segment(2, 3), segment(4, 5, 6, 7)))
    memplan.apply(model, plan)
    assert runs(model) == [3, 3, 2, 2, 2, 2, 2, 2]


def test_a_selective_block_runs_only_what_it_does_not_keep() -> None:
    model = Chain(1, Plain)
    plan = CheckpointPlan(blocks=blocks(Action.SELECTIVE, 0, saved=(SavedOp(op="aten.addmm.default", calls=(0,)),)))
    memplan.apply(model, plan)
    loss = model(rows()).mean()
    names: list[str] = []

    class Ops(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.append(str(func))
            return func(*args, **(kwargs or {}))

    # The mode sits below the one that hands out what was kept, as a kernel would.
    with Ops():
        loss.backward()
    assert names.count("aten.cos.default") == 2  # one in the second run, one as the derivative of the other's sine
    assert names.count("aten.addmm.default") == 0


@pytest.mark.parametrize("calls", [(2,), (0, 5)])
def test_a_planned_call_that_does_not_come_is_told(calls: tuple[int, ...]) -> None:
    model = Chain(2, Plain)
    plan = CheckpointPlan(blocks=blocks(Action.SELECTIVE, 1, saved=(SavedOp(op="aten.addmm.default", calls=calls),)))
    memplan.apply(model, plan)
    with pytest.raises(PlanMismatch, match=rf"layers\.1 .* call {max(calls)} of aten\.addmm\.default .* 2 times"):
        model(rows())
    with torch.no_grad():
        model(rows())


def test_a_planned_op_that_does_not_come_inside_a_segment_is_told() -> None:
    model = Chain(3, Plain)
    saved = (SavedOp(op="aten.mm.default", calls=(0,)),)
    memplan.apply(model, CheckpointPlan(blocks=blocks(Action.SELECTIVE, 0, saved=saved), segments=(segment(0, 1, 2),)))
    with pytest.raises(PlanMismatch, match=r"layers\.0 ran without"):
        model(rows()).mean().backward()
