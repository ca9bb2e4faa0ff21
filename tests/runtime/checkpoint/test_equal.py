"""A planned model does what the unplanned one does: loss, gradients and buffers, bit for bit."""

from collections import defaultdict

import pytest
import torch
from torch import nn

from memplan.runtime.checkpoint.records import Action, BlockPlan, CheckpointPlan, SavedOp
from tests.runtime.checkpoint.chains import PLANS, WIDTH, Chain, Plain, assert_equal, blocks, pair, rows, seeded, step

each_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)


@each_plan
def test_a_step_is_equal(plan: CheckpointPlan) -> None:
    plain, planned = pair(Chain, plan)
    for _ in range(2):
        assert_equal(step(planned), step(plain))


def test_the_chain_notices_what_a_second_run_could_spoil() -> None:
    # The oracle of the other tests: a second forward of the same model changes its statistics, another seed its loss.
    model = seeded(Chain)
    first = step(model)
    second = step(model)
    assert not torch.equal(first["buffer layers.0.norm.running_mean"], second["buffer layers.0.norm.running_mean"])
    torch.manual_seed(4)
    assert not torch.equal(model(rows()), model(rows()))


@each_plan
def test_gradients_accumulate(plan: CheckpointPlan) -> None:
    plain, planned = pair(Chain, plan)
    for seed in (5, 6):
        batch = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(seed))
        found, expected = step(planned, batch), step(plain, batch)
    assert_equal(found, expected)


@each_plan
def test_two_forwards_before_one_backward(plan: CheckpointPlan) -> None:
    found = []
    for model in pair(Chain, plan):
        torch.manual_seed(3)
        (model(rows()).mean() + model(rows().flip(0)).pow(2).mean()).backward()
        found.append(
            {name: parameter.grad for name, parameter in model.named_parameters()} | dict(model.named_buffers())
        )
    assert_equal(found[1], found[0])


@each_plan
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(plan: CheckpointPlan, dtype: torch.dtype) -> None:
    found = []
    for model in pair(Chain, plan):
        torch.manual_seed(3)
        with torch.autocast("cpu", dtype=dtype):
            output = model(rows())
        output.float().pow(2).mean().backward()
        found.append(
            {name: parameter.grad for name, parameter in model.named_parameters()} | dict(model.named_buffers())
        )
    assert_equal(found[1], found[0])


@each_plan
def test_an_input_that_needs_a_gradient(plan: CheckpointPlan) -> None:
    found = []
    for model in pair(Chain, plan):
        batch = rows().requires_grad_()
        found.append(step(model, batch) | {"input": batch.grad})
    assert_equal(found[1], found[0])


@each_plan
def test_frozen_parts(plan: CheckpointPlan) -> None:
    # The first blocks' inputs need no gradient, and one block has nothing to learn.
    def build() -> nn.Module:
        model = Chain()
        model.embed.requires_grad_(False)
        model.layers[0].requires_grad_(False)
        model.layers[2].requires_grad_(False)
        return model

    plain, planned = pair(build, plan)
    assert_equal(step(planned), step(plain))


@each_plan
def test_tied_weights(plan: CheckpointPlan) -> None:
    def build() -> nn.Module:
        model = Chain()
        for layer in model.layers:
            layer.wide.weight = model.layers[0].wide.weight
        return model

    plain, planned = pair(build, plan)
    assert_equal(step(planned), step(plain))


@each_plan
def test_evaluation_only_calls_forward(plan: CheckpointPlan) -> None:
    plain, planned = pair(Chain, plan)
    runs: dict[str, int] = defaultdict(int)
    for name, module in planned.named_modules():
        module.register_forward_hook(lambda *_, name=name: runs.__setitem__(name, runs[name] + 1))
    for model in (plain.eval(), planned.eval()):
        model.eval()
    for context in (torch.no_grad(), torch.inference_mode()):
        with context, torch.autograd.graph.saved_tensors_hooks(pytest.fail, pytest.fail):
            assert torch.equal(plain(rows()), planned(rows()))
    assert set(runs.values()) == {2}
    assert len(runs) == sum(not isinstance(module, nn.ModuleList) for module in planned.modules())
    # Training goes on as if nothing had been evaluated.
    assert_equal(step(planned.train()), step(plain.train()))


@each_plan
def test_gradients_in_evaluation_mode(plan: CheckpointPlan) -> None:
    plain, planned = (model.eval() for model in pair(Chain, plan))
    assert_equal(step(planned), step(plain))


class Crossed(nn.Module):
    """Two tensors, a list, a string and a mask; returns a tuple; writes to a buffer that it also reads."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH))
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("average", torch.ones(WIDTH))

    def forward(
        self, x: torch.Tensor, memory: torch.Tensor, scales: list[float], *, mode: str, mask: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.calls += 1
        self.average = 0.9 * self.average + 0.1 * x.detach().mean(0)
        y = self.mix(x * self.average) * scales[0] + memory * self.calls
        if mask is not None:
            y = y.masked_fill(mask, 0.0)
        return torch.tanh(y) if mode == "tanh" else y, memory.relu()


class CrossedChain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Crossed() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        memory, mask = x.flip(0), x > 1.5
        for index, layer in enumerate(self.layers):
            x, memory = layer(x, memory, [0.5, index], mode="tanh" if index else "plain", mask=mask)
        return x + memory


@pytest.mark.parametrize("action", [Action.CHECKPOINT, Action.SELECTIVE, Action.OFFLOAD])
def test_several_inputs_and_buffers_that_are_read_and_written(action: Action) -> None:
    saved = PLANS["selective"].blocks[0].saved if action is Action.SELECTIVE else ()
    plan = CheckpointPlan(blocks=blocks(action, 0, 1, 2, saved=saved))
    plain, planned = pair(CrossedChain, plan)
    for _ in range(2):
        assert_equal(step(planned), step(plain))


def test_modules_without_children_and_nested_modules() -> None:
    plan = CheckpointPlan(
        blocks=tuple(
            BlockPlan(module=name, action=Action.CHECKPOINT) for name in ("layers.0", "layers.0.wide", "layers.1.norm")
        )
    )
    plain, planned = pair(Chain, plan)
    assert_equal(step(planned), step(plain))


def test_a_retained_graph_runs_again() -> None:
    plain, planned = pair(Chain, PLANS["checkpoint"])
    for model in (plain, planned):
        torch.manual_seed(3)
        loss = model(rows()).pow(2).mean()
        loss.backward(retain_graph=True)
        loss.backward()
    for expected, found in zip(plain.parameters(), planned.parameters(), strict=True):
        assert torch.equal(expected.grad, found.grad)
    for expected, found in zip(plain.buffers(), planned.buffers(), strict=True):
        assert torch.equal(expected, found)


class Convolution(nn.Module):
    """Statistics that are averaged over all batches, statistics without a counter, noise that is saved before it is
    drawn, and a result that is written to in place."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(4, 4, 3, padding=1)
        self.instance = nn.InstanceNorm2d(4, track_running_stats=True)
        self.norm = nn.BatchNorm2d(4, momentum=None)
        self.activation = nn.RReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.activation(self.norm(self.instance(self.convolution(x))))


@pytest.mark.parametrize("action", [Action.CHECKPOINT, Action.SELECTIVE, Action.OFFLOAD])
def test_convolutions_with_statistics(action: Action) -> None:
    def build() -> nn.Module:
        return nn.Sequential(*(Convolution() for _ in range(3)))

    saved = (SavedOp(op="aten.convolution.default", calls=(0,)),) if action is Action.SELECTIVE else ()
    plain, planned = pair(
        build, CheckpointPlan(blocks=tuple(BlockPlan(module=str(i), action=action, saved=saved) for i in range(3)))
    )
    images = torch.randn(3, 4, 6, 6, generator=torch.Generator().manual_seed(1))
    for _ in range(2):
        assert_equal(step(planned, images), step(plain, images))


@pytest.mark.parametrize("action", [Action.CHECKPOINT, Action.SELECTIVE, Action.OFFLOAD])
def test_a_block_that_is_called_again_and_again(action: Action) -> None:
    class Repeating(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = seeded(Chain).layers[0]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(3):
                x = self.block(x, scale=0.5)
            return x

    saved = PLANS["selective"].blocks[0].saved if action is Action.SELECTIVE else ()
    plan = CheckpointPlan(blocks=(BlockPlan(module="block", action=action, saved=saved),))
    plain, planned = pair(Repeating, plan)
    for _ in range(2):
        assert_equal(step(planned), step(plain))


@pytest.mark.parametrize("name", ["checkpoint", "offload", "segment"])
def test_gradients_of_gradients(name: str) -> None:
    found = []
    for model in pair(lambda: Chain(4, Plain), PLANS[name]):
        batch = rows().requires_grad_()
        (inner,) = torch.autograd.grad(model(batch).sum(), batch, create_graph=True)
        inner.pow(2).sum().backward()
        found.append({key: parameter.grad for key, parameter in model.named_parameters() if parameter.grad is not None})
    assert found[1].keys() == found[0].keys()
    for key, expected in found[0].items():
        torch.testing.assert_close(found[1][key], expected)
