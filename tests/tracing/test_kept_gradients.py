"""``--keep-gradients``: gradients that are zeroed instead of dropped, against a real run on the CPU."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from memplan.errors import UsageError
from memplan.tracing.records import DeviceTraits, Trace
from tests.tracing.jobs import CPU, source, trace
from tests.tracing.real_memory import peak, real_allocations

CUDA = DeviceTraits(kind="cuda")
WIDTHS = (16, 64, 48, 80, 8)
GRADIENT_BYTES = sum(4 * (left * right + right) for left, right in itertools.pairwise(WIDTHS))


def model() -> nn.Module:
    return nn.Sequential(*(nn.Linear(*pair) for pair in itertools.pairwise(WIDTHS)))


def batch(_: int) -> torch.Tensor:
    return torch.zeros(4, WIDTHS[0])


def loss(output: torch.Tensor, _: object) -> torch.Tensor:
    return output.square().mean()


def kept(device: DeviceTraits = CUDA, **options: Any) -> Trace:
    return trace(source(model, batch, loss=loss), device, keep_gradients=True, **options)


def alive_between_steps(found: Trace, role: str) -> int:
    sizes = (
        found.storages[event.storage].nbytes * (1 if event.action == "alloc" else -1)
        for event in found.events[: found.steps[-1].end_event]
        if found.storages[event.storage].role == role
    )
    return sum(sizes)


def test_gradients_stay_from_step_to_step_and_the_step_repeats() -> None:
    found = kept()
    assert found.repeats
    assert alive_between_steps(found, "gradient") == GRADIENT_BYTES
    assert alive_between_steps(trace(source(model, batch, loss=loss), CUDA), "gradient") == 0


def by_hand(given: nn.Module) -> Iterator[None]:
    optimizer = torch.optim.AdamW(given.parameters(), lr=1e-4)
    x = output = value = None
    while True:
        x = None
        x = batch(0)
        output = given(x)
        value = loss(output, x)
        value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        yield


def test_a_real_run_on_the_cpu_has_the_same_peak() -> None:
    steps = by_hand(model())
    next(steps)
    real = peak(real_allocations(lambda: next(steps)))
    found = kept(CPU)
    events = found.events[found.steps[-1].first_event : found.steps[-1].end_event]
    sizes = [found.storages[each.storage].nbytes * (1 if each.action == "alloc" else -1) for each in events]
    made = {each.storage for each in events if each.action == "alloc"}
    # The profiler does not see that what was there before it is freed: the last batch and output.
    unseen = sum(found.storages[each.storage].nbytes for each in events if each.storage not in made)
    # Real arithmetic with Python numbers makes tensors of one element.
    assert peak(sizes) + unseen == pytest.approx(real, abs=64)


def test_the_target_s_own_optimizers_keep_them_too() -> None:
    def optimizers(parameters: Any) -> dict[str, torch.optim.Optimizer]:
        first, *others = parameters
        return {"first": torch.optim.SGD([first], lr=0.1), "others": torch.optim.SGD(others, lr=0.1)}

    found = trace(source(model, batch, loss=loss, optimizer=optimizers), CUDA, keep_gradients=True)
    assert alive_between_steps(found, "gradient") == GRADIENT_BYTES


def test_a_gradient_that_its_hook_has_used_stays_too() -> None:
    assert alive_between_steps(kept(optimizer_in_backward=True), "gradient") == GRADIENT_BYTES


def test_a_target_s_own_step_is_left_alone_and_said_so() -> None:
    job = source(model, batch, train_step=lambda *_: None)
    with pytest.raises(UsageError, match="--keep-gradients would change nothing"):
        trace(job, CUDA, keep_gradients=True)
