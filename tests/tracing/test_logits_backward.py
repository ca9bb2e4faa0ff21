"""Gradients of ``binary_cross_entropy_with_logits``, whose formula works in place where no dispatch mode watches."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from tests.tracing.jobs import source, trace
from tests.tracing.real_memory import real_allocations

ROWS, WIDTH = 512, 64
LARGE = ROWS * WIDTH * 4
Options = Callable[[], dict[str, object]]


def rows(size: int) -> torch.Tensor:
    return torch.rand(size, WIDTH)


def sgd(parameters: object) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, foreach=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [
    dict,
    lambda: {"reduction": "sum"},
    lambda: {"weight": torch.rand(ROWS, WIDTH)},
    lambda: {"pos_weight": torch.rand(ROWS, WIDTH)},
])  # fmt: skip
def test_as_many_tensors_as_a_plain_run_makes(options: Options) -> None:
    def loss(output: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        return binary_cross_entropy_with_logits(output, batch, **options())  # type: ignore[arg-type]

    recorded = trace(source(lambda: nn.Linear(WIDTH, WIDTH), rows, loss=loss, optimizer=sgd), batch_size=ROWS)
    last = recorded.steps[-1]
    events = recorded.events[last.first_event : last.end_event]
    born = [recorded.storages[event.storage].nbytes for event in events if event.action == "alloc"]

    def real() -> None:
        model = nn.Linear(WIDTH, WIDTH)
        batch = rows(ROWS)
        loss(model(batch), batch).backward()

    assert born.count(LARGE) == real_allocations(real).count(LARGE)
