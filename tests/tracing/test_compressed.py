"""``--compress-activations``: bytes that are held for backward, and that what comes back is near what was saved."""

from typing import Any

import pytest
import torch
from torch import nn

from memplan.errors import UsageError
from memplan.tracing.compressed import compressing
from memplan.tracing.records import DeviceTraits, Trace
from tests.tracing.jobs import source, trace

CUDA = DeviceTraits(kind="cuda")
LAYERS, TOKENS, WIDTH = 4, 64, 80
ELEMENTS = TOKENS * WIDTH


def model() -> nn.Module:
    return nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Sigmoid()) for _ in range(LAYERS)))


def traced(**options: Any) -> Trace:
    job = source(model, lambda _: torch.zeros(TOKENS, WIDTH), loss=lambda output, _: output.sum())
    return trace(job, CUDA, **options)


def held(found: Trace) -> int:
    """Bytes made in forward that are alive when the last backward begins."""
    step = found.steps[-1]
    first = next(op.index for op in found.ops[step.first_op :] if op.phase == "backward")
    alive: set[int] = set()
    for event in found.events[step.first_event : step.end_event]:
        if event.op < first and found.storages[event.storage].role == "intermediate":
            (alive.add if event.action == "alloc" else alive.discard)(event.storage)
    return sum(found.storages[each].nbytes for each in alive)


@pytest.mark.parametrize(
    ("how", "one"),
    [("int8", ELEMENTS + 4 * TOKENS), ("topk", (4 + 4) * (ELEMENTS // 10))],
)
def test_what_is_held_is_the_compressed_form(how: Any, one: int) -> None:
    # Each sigmoid's output is saved by itself and by the next layer, the batch by the first; the last is the output.
    output_and_loss = 4 * ELEMENTS + 4
    assert held(traced(compress_activations=how)) == 2 * LAYERS * one + output_and_loss + 4
    assert held(traced()) == LAYERS * 4 * ELEMENTS + 4 + 4


@pytest.mark.parametrize("how", ["int8", "topk"])
def test_the_step_repeats_and_checkpoints_stay_possible(how: Any) -> None:
    assert traced(compress_activations=how, checkpoint="full").repeats


def test_int8_gradients_are_near_the_plain_ones() -> None:
    torch.manual_seed(0)
    given, data = model(), torch.randn(TOKENS, WIDTH)
    given(data).sum().backward()
    plain = [each.grad.clone() for each in given.parameters() if each.grad is not None]
    given.zero_grad()
    compressing(lambda module, x: module(x), "int8")(given, data).sum().backward()
    for expected, parameter in zip(plain, given.parameters(), strict=True):
        assert parameter.grad is not None
        difference = (parameter.grad - expected).norm() / expected.norm()
        assert difference < 0.02


def test_topk_brings_back_the_largest_at_their_places() -> None:
    seen: list[torch.Tensor] = []

    class Watched(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
            seen.append(ctx.saved_tensors[0])
            return gradients[0]

    x = torch.randperm(1000).float().add(1).requires_grad_()
    compressing(lambda _, batch: Watched.apply(batch), "topk")(nn.Identity(), x).sum().backward()
    expected = torch.where(x > 900, x, 0.0)
    torch.testing.assert_close(seen[0], expected.detach())


def test_offloading_too_is_refused() -> None:
    with pytest.raises(UsageError, match="two answers"):
        traced(compress_activations="int8", offload_activations=True)
