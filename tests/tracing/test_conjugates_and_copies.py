"""Conjugates that are a bit of their tensor, and deep copies of tensors, against real runs on the CPU."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from memplan.errors import MemplanError
from tests.tracing.jobs import CPU, source, trace
from tests.tracing.real_memory import real_allocations

LARGE = 1_000
"""Bytes: real arithmetic with Python numbers makes tensors of one element."""


def linear() -> nn.Module:
    return nn.Linear(64, 64)


def rows(size: int) -> torch.Tensor:
    return torch.zeros(size, 64)


def by_itself(z: torch.Tensor) -> torch.Tensor:
    return z * z.conj()


def conjugate_first(z: torch.Tensor) -> torch.Tensor:
    return z.conj() * z


def twice(z: torch.Tensor) -> torch.Tensor:
    return z.conj() * z.conj()


def three_uses(z: torch.Tensor) -> torch.Tensor:
    return z * z.conj() + z.conj().conj() * z


def plain(z: torch.Tensor) -> torch.Tensor:
    return z * z


Product = Callable[[torch.Tensor], torch.Tensor]


def product_step(product: Product) -> Callable[[nn.Module, object, torch.Tensor], None]:
    def step(model: nn.Module, _: object, batch: torch.Tensor) -> None:
        x = model(batch)
        product(torch.complex(x, -x)).real.sum().backward()
        model.zero_grad()

    return step


@pytest.mark.parametrize("product", [plain, by_itself, conjugate_first, twice, three_uses])
def test_gradients_of_conjugates_are_summed_in_place(product: Product) -> None:
    step, model = product_step(product), linear()
    step(model, None, rows(8))
    real = sorted(size for size in real_allocations(lambda: step(model, None, rows(8))) if size >= LARGE)
    found = trace(source(linear, rows, train_step=step), CPU, batch_size=8)
    events = found.events[found.steps[-1].first_event : found.steps[-1].end_event]
    made = [found.storages[each.storage].nbytes for each in events if each.action == "alloc"]
    assert sorted(size for size in made if size >= LARGE) == real


def of_a_view(kept: list[object]) -> None:
    kept.append(copy.deepcopy(torch.zeros(100, 64)[:10]))


def of_two_views(kept: list[object]) -> None:
    whole = torch.zeros(100, 64)
    kept.append(copy.deepcopy([whole[:10], whole[5:30].t(), whole.view(torch.int32)]))


def of_a_tensor_with_a_gradient(kept: list[object]) -> None:
    weight = torch.zeros(100, 64, requires_grad=True)
    weight.sum().backward()
    kept.append(copy.deepcopy(weight))


def of_a_layer_with_gradients(kept: list[object]) -> None:
    layer = nn.Linear(64, 100, bias=False)
    layer(torch.zeros(1, 64)).sum().backward()
    kept.append(copy.deepcopy(layer))


def of_a_view_of_a_complex_one(kept: list[object]) -> None:
    kept.append(copy.deepcopy(torch.zeros(100, 64, dtype=torch.complex64).real))


def of_a_conjugate(kept: list[object]) -> None:
    kept.append(copy.deepcopy(torch.zeros(100, 64, dtype=torch.complex64).conj()))


@pytest.mark.parametrize(
    "copied",
    [
        of_a_view,
        of_two_views,
        of_a_tensor_with_a_gradient,
        of_a_layer_with_gradients,
        of_a_view_of_a_complex_one,
        of_a_conjugate,
    ],
)
def test_a_deep_copy_takes_what_it_takes_in_a_real_run(copied: Callable[[list[object]], None]) -> None:
    held: list[object] = []
    real = sum(real_allocations(lambda: copied(held)))
    kept: list[object] = []
    found = trace(source(linear, rows, train_step=lambda *_: copied(kept)), CPU)
    sign = {"alloc": 1, "free": -1}
    events = found.events[found.steps[-1].first_event : found.steps[-1].end_event]
    assert sum(found.storages[each.storage].nbytes * sign[each.action] for each in events) == real


def test_what_no_real_run_can_copy_is_an_error() -> None:
    def step(model: nn.Module, _: object, batch: torch.Tensor) -> None:
        copy.deepcopy(model(batch))

    with pytest.raises(MemplanError, match="explicitly by the user"):
        trace(source(linear, rows, train_step=step), CPU)
