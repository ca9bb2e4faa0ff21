"""What a plan that offloads says of its time, held against the applied model with a copier of known bandwidth."""

import time
from typing import Any

import pytest
import torch
from torch import nn

from memplan.job.source import ModelSource
from memplan.lifetime.roofline import Roofline
from memplan.plan.checkpoint.blocks.as_plan import plan_for
from memplan.plan.checkpoint.blocks.probe.build import build_problem
from memplan.plan.checkpoint.blocks.probe.run import probe
from memplan.plan.checkpoint.blocks.probe.tracer import Tracer
from memplan.plan.checkpoint.blocks.problem.copies import bytes_back
from memplan.plan.checkpoint.blocks.problem.records import BlockChoice, BlockProblem
from memplan.plan.checkpoint.blocks.problem.seconds import extra_seconds
from memplan.runtime.checkpoint.apply import apply
from memplan.runtime.checkpoint.offload import PinnedHost
from memplan.runtime.checkpoint.records import Action
from tests.plan.checkpoint.blocks.steps import device, job, source

WIDTH, BATCH, BLOCKS = 64, 256, 4
BANDWIDTH = 3e5
"""Bytes per second: copies take most of a second, beside which the computation is nothing."""
STEPS = 2
"""The first of them loads what has not run yet."""
SHARE = 0.1
"""Of the plan's time that may be missing or too much."""


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(BLOCKS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Slow(PinnedHost):
    """Copies back at a known bandwidth, and counts."""

    def __init__(self) -> None:
        super().__init__()
        self.nbytes = 0

    def give(self, taken: Any) -> torch.Tensor:
        back = super().give(taken)
        time.sleep(back.nbytes / BANDWIDTH)
        self.nbytes += back.nbytes
        return back


def given() -> ModelSource:
    return source(Net, lambda size: torch.randn(size, WIDTH), loss=lambda output, _: output.square().sum())


@pytest.fixture(scope="module")
def problem() -> BlockProblem:
    spec, profile = job(batch_size=BATCH), device("cpu")
    tracer, roofline = Tracer(given, spec, profile), Roofline.of(profile, spec.precision)
    found = probe(tracer, tracer.trace(), roofline, offload=True)
    return build_problem(found.probes, found.kinds, found.menus, roofline, host_link_bandwidth=BANDWIDTH)


def chosen(problem: BlockProblem, *offloaded: int) -> BlockChoice:
    """These blocks wait on the host, the others keep."""
    return BlockChoice(
        options=tuple(
            next(
                number
                for number, option in enumerate(block.options)
                if option.action is (Action.OFFLOAD if index in offloaded else Action.KEEP)
            )
            for index, block in enumerate(problem.blocks)
        )
    )


def seconds_of_a_step(model: nn.Module) -> float:
    x = torch.randn(BATCH, WIDTH)
    began = time.perf_counter()
    model(x).square().sum().backward()
    return time.perf_counter() - began


@pytest.mark.slow
@pytest.mark.parametrize("offloaded", [(0,), (1, 2), (0, 1, 2, 3)])
def test_the_applied_step_takes_the_time_that_the_plan_says(problem: BlockProblem, offloaded: tuple[int, ...]) -> None:
    choice = chosen(problem, *offloaded)
    model, host = Net(), Slow()
    plain = min(seconds_of_a_step(model) for _ in range(3))
    plan = plan_for(problem, choice)
    with_plan = apply(model, type(plan)(blocks=plan.blocks), host=host)
    steps = [seconds_of_a_step(model) for _ in range(STEPS)]
    took = min(steps) - plain
    with_plan.remove()
    assert host.nbytes == STEPS * bytes_back(problem, choice)
    assert took == pytest.approx(extra_seconds(problem, choice), rel=SHARE)
