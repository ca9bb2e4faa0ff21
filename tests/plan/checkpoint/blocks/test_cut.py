"""Steps cut into the runs of their blocks, and what may be kept of a block."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from memplan.job.source import ModelSource
from memplan.lifetime.roofline import Roofline
from memplan.plan.checkpoint.blocks.probe.cut import Cut, cut
from memplan.plan.checkpoint.blocks.probe.kinds import kinds_of
from memplan.plan.checkpoint.blocks.probe.menu import CHECKPOINT, KEEP, menu
from memplan.plan.checkpoint.blocks.probe.read import read
from memplan.runtime.checkpoint.records import SavedOp
from memplan.tracing.records import DeviceTraits, Trace
from memplan.tracing.run import trace_job
from tests.plan.checkpoint.blocks.steps import JOBS, device, job, source
from tests.tracing.jobs import CPU

CUDA = device("h100-80g")


def traced(given: ModelSource, **options: Any) -> Trace:
    return trace_job(lambda: given, job(**options), CPU)


def turns(found: Cut) -> list[str]:
    """``F0`` and ``B0`` for the runs of block 0, in order."""
    return [f"{each.phase[0].upper()}{each.block}" for each in found.stretches if each.block is not None]


class Called(nn.Module):
    """Calls its two blocks in an order of its own."""

    def __init__(self, call: Callable[[nn.ModuleList, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(2))
        self.call = call

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.call(self.blocks, x)


def total(output: torch.Tensor, _: Any) -> torch.Tensor:
    return output.sum()


@pytest.mark.parametrize(
    ("call", "expected", "dropped"),
    [
        (lambda b, x: b[1](b[0](x)), "F0 F1 B1 B0", ()),
        # One after the other: one run.
        (lambda b, x: b[1](b[0](b[0](x))), "F0 F1 B1 B0", ()),
        # In turns: the last forward is differentiated first.
        (lambda b, x: b[1](b[0](b[1](b[0](x)))), "F0 F1 F0 F1 B1 B0 B1 B0", ()),
        (lambda b, x: b[0](x), "F0 B0", ("blocks.1",)),
        (lambda b, x: b[1](b[0](x).detach()), "F0 B0", ("blocks.0",)),
    ],
)
def test_blocks_take_turns(call: Any, expected: str, dropped: tuple[str, ...]) -> None:
    trace = traced(source(lambda: Called(call), lambda size: torch.ones(size, 8), loss=total))
    found = cut(trace, ["blocks.0", "blocks.1"])
    assert turns(found) == expected.split()
    assert found.dropped == dropped
    for block, spans in enumerate(found.spans):
        for forward, backward in spans:
            assert (found.stretches[forward].block, found.stretches[forward].phase) == (block, "forward")
            assert (found.stretches[backward].block, found.stretches[backward].phase) == (block, "backward")
            assert forward < backward


def test_stretches_hold_every_op_and_event_of_the_step_once() -> None:
    trace = traced(JOBS["translator"](), grad_accum=2)
    found = cut(trace, ["encoder.0", "encoder.1", "decoder.0", "decoder.1", "decoder.2"])
    assert [len(spans) for spans in found.spans] == [2] * 5
    step, first, last = trace.steps[-1], found.stretches[0], found.stretches[-1]
    assert (first.first_op, first.first_event) == (step.first_op, step.first_event)
    assert (last.end_op, last.end_event) == (step.end_op, step.end_event)
    for one, other in zip(found.stretches, found.stretches[1:], strict=False):
        assert (one.end_op, one.end_event) == (other.first_op, other.first_event)


def test_blocks_of_one_structure_and_size_are_of_one_kind() -> None:
    trace = traced(JOBS["residual"]())
    reading = read(trace, cut(trace, ["1.0", "1.1", "2.0", "2.1"]))
    assert kinds_of(reading) == (0, 0, 1, 2)


class Dropping(nn.Module):
    """A matrix product, dropouts, an op in place."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.drop = nn.Linear(8, 32), nn.Linear(32, 8), nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.drop(self.two(self.drop(self.one(x)).mul(2).relu_()))


def test_only_what_may_be_kept_is_offered() -> None:
    given = source(
        lambda: nn.Sequential(Dropping(), Dropping(), nn.Linear(8, 1)), lambda size: torch.ones(size, 8), loss=total
    )
    trace = trace_job(lambda: given, job(), DeviceTraits.of(CUDA))
    reading = read(trace, cut(trace, ["0", "1"]))
    options = menu(reading, reading.runs[0][0], Roofline.of(CUDA, "fp32"), selective=True, offload=False)
    assert options[:2] == (KEEP, CHECKPOINT)
    offered = [set(option.saved) for option in options[2:]]
    calls = {(entry.op, call) for saved in offered for entry in saved for call in entry.calls}
    # What is written into later, and what is written in place.
    assert not {op for op, _ in calls} & {"aten.mul.Tensor", "aten.relu_.default"}
    # One dropout that runs again alone would draw the other's numbers; the sum at the end is the block's result.
    dropouts = [entry for saved in offered for entry in saved if entry.op == "aten.native_dropout.default"]
    assert all(entry == SavedOp(op="aten.native_dropout.default", calls=(0, 1)) for entry in dropouts)
    assert ("aten.add.Tensor", 0) not in calls
    assert ("aten.addmm.default", 0) in calls
