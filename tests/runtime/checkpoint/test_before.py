"""A second run finds its modules as the first one did, and leaves nothing behind: buffers, modes, parameters."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from memplan.runtime.checkpoint.mismatch import PlanMismatch
from memplan.runtime.checkpoint.records import CheckpointPlan
from tests.runtime.checkpoint.chains import PLANS, WIDTH, Block, Chain, Plain, assert_equal, pair, rows, seeded, step

each_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
each_rerun = pytest.mark.parametrize("plan", [PLANS["checkpoint"], PLANS["selective"], PLANS["segment"]])


class CodeBook(Plain):
    """Learns an average as libraries of code books do: past the version counter."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", torch.zeros(WIDTH))

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        if self.training:
            self.average.data.lerp_(x.detach().mean(0), 0.5)
        return super().forward(x - self.average, scale=scale)


@each_plan
def test_what_is_written_past_the_version_counter_is_written_once(plan: CheckpointPlan) -> None:
    plain, planned = pair(lambda: Chain(4, CodeBook), plan)
    for model in (plain, planned):
        step(model.eval())
        model.train()
    for _ in range(3):
        assert_equal(step(planned), step(plain))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.bool, torch.complex64, torch.uint16])
def test_buffers_of_any_kind_of_number(dtype: torch.dtype) -> None:
    class Odd(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("odd", torch.ones(3, 2).to(dtype).t())
            self.register_buffer("single", torch.ones(()).to(dtype))
            self.register_buffer("none", torch.ones(0).to(dtype))

    plain, planned = pair(lambda: Chain(4, Odd), PLANS["checkpoint"])
    found, expected = step(planned), step(plain)
    assert all(torch.equal(found[name], expected[name]) for name in expected if not name.startswith("buffer"))


@each_plan
@pytest.mark.parametrize("block", [Block, nn.BatchNorm1d], ids=["dropout", "statistics"])
def test_the_mode_may_change_before_backward(plan: CheckpointPlan, block: type[nn.Module]) -> None:
    class Normed(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(WIDTH)

        def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
            return super().forward(self.norm(x), scale=scale)

    found = []
    for model in pair(lambda: Chain(4, Block if block is Block else Normed), plan):
        torch.manual_seed(3)
        loss = model(rows()).pow(2).mean()
        model.eval()
        loss.backward()
        assert not any(module.training for module in model.modules())
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        found.append(gradients | dict(model.named_buffers()))
    assert_equal(found[1], found[0])


@each_plan
def test_lent_parameters(plan: CheckpointPlan) -> None:
    found = []
    for model in pair(lambda: Chain(4, Plain), plan):
        own = dict(model.named_parameters())
        lent = {name: (2 * parameter.detach()).requires_grad_() for name, parameter in own.items()}
        torch.func.functional_call(model, lent, (rows(),)).pow(2).mean().backward()
        assert all(parameter is own[name] and parameter.grad is None for name, parameter in model.named_parameters())
        found.append({name: parameter.grad for name, parameter in lent.items()})
    assert_equal(found[1], found[0])


@each_plan
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*torch.jit:FutureWarning")
def test_a_scripted_part(plan: CheckpointPlan) -> None:
    class Scripted(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.scripted = torch.jit.script(nn.Linear(WIDTH, WIDTH))

        def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
            return super().forward(self.scripted(x), scale=scale)

    plain, planned = pair(lambda: Chain(4, Scripted), plan)
    assert_equal(step(planned), step(plain))


def _scales(x: torch.Tensor) -> torch.Tensor:
    return x.mul_(1.5)


@each_rerun
@pytest.mark.parametrize("write", [_scales, torch.relu_], ids=["scale", "relu"])
def test_a_block_that_writes_to_its_input_is_told(
    plan: CheckpointPlan, write: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    class Writing(Plain):
        def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
            return super().forward(write(x), scale=scale)

    planned = pair(lambda: Chain(4, Writing), plan)[1]
    with pytest.raises(PlanMismatch, match=r"layers\.0 writes to its own input"):
        planned(rows())
    with torch.no_grad():
        assert torch.equal(planned(rows()), seeded(lambda: Chain(4, Writing))(rows()))
    # Where nothing learns, nothing runs again.
    planned.requires_grad_(False)(rows())
