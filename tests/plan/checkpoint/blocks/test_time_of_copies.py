"""What a plan that offloads says of its time and bytes, against the applied model with a copier of known bandwidth.

Computation is known, too: every block's backward takes a stated time, on a clock in the tests of every run, and asleep
in those that are timed.
"""

import time
from collections.abc import Callable
from dataclasses import replace
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
from memplan.plan.checkpoint.blocks.problem.memory import position_bytes
from memplan.plan.checkpoint.blocks.problem.records import BlockChoice, BlockProblem
from memplan.plan.checkpoint.blocks.problem.seconds import extra_seconds
from memplan.plan.checkpoint.blocks.prove.trials import Trials
from memplan.runtime.checkpoint.apply import apply
from memplan.runtime.checkpoint.host import PinnedHost, Returning
from memplan.runtime.checkpoint.records import Action
from tests.plan.checkpoint.blocks.steps import device, job, source

WIDTH, BATCH, BLOCKS = 64, 256, 4
BANDWIDTH = 3e5
"""Bytes per second: the copies of a block take 0.44 s, beside which what is really computed is nothing."""
COMPUTING = 0.3
"""Seconds of a block's backward: most of a copy, so that a part of each can be hidden."""
STEPS = 2
"""The first of them loads what has not run yet."""
SHARE = 0.1
"""Of the plan's time that may be missing or too much."""
OFFLOADED = [(0,), (1, 2), (0, 3), (0, 1, 2, 3)]


class Computing(torch.autograd.Function):
    """Computes for a while in backward."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, passing: Callable[[float], object]) -> torch.Tensor:
        context.passing = passing
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        context.passing(COMPUTING)
        return gradient, None


class Block(nn.Module):
    def __init__(self, passing: Callable[[float], object]) -> None:
        super().__init__()
        self.linear, self.passing = nn.Linear(WIDTH, WIDTH), passing

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(Computing.apply(self.linear(x), self.passing))


class Net(nn.Module):
    def __init__(self, passing: Callable[[float], object] = lambda _: None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(passing) for _ in range(BLOCKS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Clock(PinnedHost):
    """Copies back at a known bandwidth, one after the other, on a clock that computation moves on, too."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.free = 0.0

    def passing(self, seconds: float) -> None:
        self.now += seconds

    def give(self, taken: Any) -> Returning:
        copy = super().give(taken)
        self.free = done = max(self.now, self.free) + taken[0].nbytes / BANDWIDTH

        def wait() -> None:
            self.now = max(self.now, done)

        return Returning(copy.arrived(), wait)


class Slow(PinnedHost):
    """Copies back by its thread at a known bandwidth."""

    def _copy_back(self, flat: torch.Tensor, host: torch.Tensor) -> None:
        time.sleep(host.nbytes / BANDWIDTH)
        super()._copy_back(flat, host)


def given() -> ModelSource:
    return source(Net, lambda size: torch.randn(size, WIDTH), loss=lambda output, _: output.square().sum())


@pytest.fixture(scope="module")
def trials() -> Trials:
    spec, profile = job(batch_size=BATCH), device("cpu")
    tracer, roofline = Tracer(given, spec, profile), Roofline.of(profile, spec.precision)
    probing = probe(tracer, tracer.trace(), roofline, offload=True)
    problem = build_problem(probing.probes, probing.kinds, probing.menus, roofline, host_link_bandwidth=BANDWIDTH)
    return Trials(
        tracer=tracer, profile=profile, roofline=roofline, probing=probing, problem=problem, progress=lambda _: None
    )


@pytest.fixture(scope="module")
def problem(trials: Trials) -> BlockProblem:
    """The problem, with what blocks compute as it is here."""
    positions = tuple(
        replace(position, seconds=COMPUTING * (position.block is not None and position.phase == "backward"))
        for position in trials.problem.positions
    )
    blocks = tuple(
        replace(block, options=tuple(replace(option, seconds=0.0) for option in block.options))
        for block in trials.problem.blocks
    )
    return replace(trials.problem, positions=positions, blocks=blocks)


def chosen(problem: BlockProblem, offloaded: tuple[int, ...], *, prefetch: bool) -> BlockChoice:
    """These blocks wait on the host, the others keep."""
    return BlockChoice(
        options=tuple(
            next(
                number
                for number, option in enumerate(block.options)
                if option.action is (Action.OFFLOAD if index in offloaded else Action.KEEP)
            )
            for index, block in enumerate(problem.blocks)
        ),
        prefetch=prefetch,
    )


def step(model: nn.Module) -> None:
    model(torch.randn(BATCH, WIDTH)).square().sum().backward()


@pytest.mark.parametrize("prefetch", [False, True])
@pytest.mark.parametrize("offloaded", OFFLOADED)
def test_the_applied_step_takes_the_time_that_the_plan_says(
    problem: BlockProblem, offloaded: tuple[int, ...], *, prefetch: bool
) -> None:
    choice, clock = chosen(problem, offloaded, prefetch=prefetch), Clock()
    model = Net(clock.passing)
    with apply(model, plan_for(problem, choice), host=clock):
        step(model)
    assert clock.now - BLOCKS * COMPUTING == pytest.approx(extra_seconds(problem, choice))


@pytest.mark.parametrize("offloaded", OFFLOADED)
def test_the_traced_plan_has_the_bytes_of_the_formula(
    trials: Trials, problem: BlockProblem, offloaded: tuple[int, ...]
) -> None:
    ahead, plain = (chosen(problem, offloaded, prefetch=prefetch) for prefetch in (True, False))
    traced = [trials.trace(choice).live for choice in (ahead, plain)]
    said = [position_bytes(problem, choice) for choice in (ahead, plain)]
    more = [a - b for a, b in zip(*traced, strict=True)]
    assert more == [a - b for a, b in zip(*said, strict=True)]
    first = problem.blocks[offloaded[0]].options[ahead.options[offloaded[0]]]
    assert max(more) == (0 if len(offloaded) == 1 else first.offloaded_bytes)


@pytest.mark.slow
@pytest.mark.parametrize("offloaded", OFFLOADED)
def test_copies_of_known_bandwidth_take_the_time_that_the_plan_says(
    problem: BlockProblem, offloaded: tuple[int, ...]
) -> None:
    model, took = Net(time.sleep), {}
    plain = min(seconds_of_a_step(model) for _ in range(STEPS))
    for prefetch in (False, True):
        choice = chosen(problem, offloaded, prefetch=prefetch)
        with apply(model, plan_for(problem, choice), host=Slow()):
            took[prefetch] = min(seconds_of_a_step(model) for _ in range(STEPS)) - plain
        assert took[prefetch] == pytest.approx(extra_seconds(problem, choice), rel=SHARE)
    if len(offloaded) > 1:
        assert took[True] < took[False] * (1 - SHARE)


def seconds_of_a_step(model: nn.Module) -> float:
    began = time.perf_counter()
    step(model)
    return time.perf_counter() - began
