"""A plan for a GPU can be tried on the CPU, whose kernels are others: same gradients, and a warning."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import memplan
from memplan.hardware.catalog import load_profile
from memplan.job.source import ModelSource
from memplan.lifetime.roofline import Roofline
from memplan.plan.checkpoint.blocks.as_plan import plan_for
from memplan.plan.checkpoint.blocks.probe.build import build_problem
from memplan.plan.checkpoint.blocks.probe.run import probe
from memplan.plan.checkpoint.blocks.probe.tracer import Tracer
from memplan.plan.checkpoint.blocks.problem.records import BlockChoice
from memplan.plan.checkpoint.blocks.problem.seconds import extra_seconds
from memplan.runtime.checkpoint.mismatch import PlanFallbackWarning, PlanMismatch
from memplan.runtime.checkpoint.records import Action, BlockPlan, CheckpointPlan, Promise, SavedOp
from memplan.runtime.checkpoint.snippet import stand_alone_code
from memplan.units import Bytes
from tests.plan.checkpoint.blocks.steps import job, sgd

KERNEL = "aten._scaled_dot_product_efficient_attention.default"
"""What CUDA takes for fp32, and the CPU never."""


class Block(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = (each.unflatten(-1, (2, -1)).transpose(1, 2) for each in self.mix(self.norm(x)).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.drop(mixed.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def plan(device: str, *ops: str) -> CheckpointPlan:
    saved = tuple(SavedOp(op=op, calls=(0,)) for op in ops)
    promise = Promise(
        step="", device=device, budget_bytes=Bytes(1), peak_before_bytes=Bytes(1), peak_after_bytes=Bytes(1),
        overhead_ratio=0.0,
    )  # fmt: skip
    blocks = tuple(BlockPlan(module=f"blocks.{at}", action=Action.SELECTIVE, saved=saved) for at in range(3))
    return CheckpointPlan(blocks=blocks, promise=promise)


def gradients(put: Callable[[nn.Module], Any] = lambda _: None) -> list[torch.Tensor]:
    torch.manual_seed(0)
    net = Net()
    put(net)
    for _ in range(2):
        net(torch.randn(2, 16, 32)).square().mean().backward()
    return [parameter.grad for parameter in net.parameters()]


def test_a_plan_for_a_gpu_runs_on_the_cpu_and_says_what_differs() -> None:
    with pytest.warns(PlanFallbackWarning, match="efficient_attention") as told:
        planned = gradients(lambda net: memplan.apply(net, plan("h100-80g", KERNEL, "aten.addmm.default")))
    assert all(map(torch.equal, planned, gradients()))
    # All blocks lack the same: one sentence, which Python's own filter shows once.
    assert len({str(each.message) for each in told}) == 1


def test_nothing_is_said_where_every_call_comes() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        planned = gradients(lambda net: memplan.apply(net, plan("h100-80g", "aten.addmm.default")))
    assert all(map(torch.equal, planned, gradients()))


@pytest.mark.parametrize(
    ("made", "options"),
    [
        (plan("cpu", KERNEL), {}),
        (replace(plan("cpu", KERNEL), promise=None), {}),
        (plan("h100-80g", KERNEL), {"strict": True}),
    ],
    ids=["for the CPU", "by hand", "strict"],
)
def test_a_plan_that_was_not_made_elsewhere_is_held_to(made: CheckpointPlan, options: dict[str, bool]) -> None:
    with pytest.raises(PlanMismatch, match="efficient_attention"):
        gradients(lambda net: memplan.apply(net, made, **options))


def test_a_block_on_a_device_is_held_to_its_plan() -> None:
    """A meta tensor is on no CPU, as little as a CUDA one is."""
    net = Net().to("meta")
    memplan.apply(net, plan("h100-80g", KERNEL))
    with pytest.raises(PlanMismatch, match="efficient_attention"):
        net(torch.randn(2, 16, 32, device="meta"))


def test_stand_alone_code_does_the_same() -> None:
    names: dict[str, Any] = {"__name__": __name__}
    exec(stand_alone_code(plan("h100-80g", KERNEL)), names)
    with pytest.warns(UserWarning, match="efficient_attention") as told:
        planned = gradients(names["apply_plan"])
    assert {type(each.message) for each in told} == {names["PlanFallbackWarning"]}
    assert all(map(torch.equal, planned, gradients()))


@pytest.mark.slow
def test_plans_made_for_an_h100_run_on_the_cpu() -> None:
    """Every selective option that is probed for the card, in force on the real model."""
    profile, spec = load_profile("h100-80g"), job()
    given = ModelSource(
        model=Net,
        batch=lambda size, _: torch.randn(size, 16, 32),
        loss=lambda output, _: output.square().mean(),
        optimizer=sgd,
    )
    tracer = Tracer(lambda: given, spec, profile)
    roofline = Roofline.of(profile, spec.precision)
    probing = probe(tracer, tracer.trace(), roofline, offload=True)
    problem = build_problem(
        probing.probes, probing.kinds, probing.menus, roofline, host_link_bandwidth=profile.host_link_bandwidth
    )
    plain, kept = gradients(), set()
    for option, candidate in list(enumerate(problem.blocks[0].options))[1:]:
        made = plan_for(problem, BlockChoice(options=(option,) * 3))
        made = replace(made, promise=plan("h100-80g").promise)
        differs = any(saved.op == KERNEL for saved in candidate.saved)
        kept.add(differs)
        with pytest.warns(PlanFallbackWarning) if differs else warnings.catch_warnings():
            assert all(map(torch.equal, gradients(lambda net, made=made: memplan.apply(net, made)), plain))
        # What comes back from the host is waited for.
        if candidate.action is Action.OFFLOAD:
            waits = 3 * candidate.offloaded_bytes / profile.host_link_bandwidth
            assert extra_seconds(problem, BlockChoice(options=(option,) * 3)) >= waits > 0
    assert kept == {True, False}
