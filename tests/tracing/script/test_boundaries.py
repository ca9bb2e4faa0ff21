"""Where the steps of programs end that have no optimizer, counted on real tensors."""

from collections.abc import Callable

import pytest
import torch
from torch.func import functional_call

from memplan.tracing.script.boundaries import Boundaries

NET = torch.nn.Linear(4, 2)
WEIGHTS = {name: each.detach() for name, each in NET.named_parameters()}


class Counted(Boundaries):
    """Counts the steps that end."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = 0

    def made(self) -> None:
        """Nobody asks."""

    def called(self, module: torch.nn.Module) -> None:
        """Nobody asks."""

    def begin_step(self) -> None:
        """Nobody asks."""

    def end_step(self) -> bool:
        self.ended += 1
        return True


def loss(weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    return functional_call(NET, weights, (x,)).square().mean()


def transformed() -> None:
    torch.func.grad(loss)(WEIGHTS, torch.ones(3, 4))


def adapted() -> None:
    def after(weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        gradients = torch.func.grad(loss)(weights, x)
        return loss({name: each - gradients[name] for name, each in weights.items()}, x)

    torch.func.grad_and_value(after)(WEIGHTS, torch.ones(3, 4))


def asked() -> None:
    torch.autograd.grad(NET(torch.ones(3, 4)).square().mean(), list(NET.parameters()))


def asked_twice() -> None:
    [inner] = torch.autograd.grad(NET(torch.ones(3, 4)).square().mean(), NET.weight, create_graph=True)
    torch.autograd.grad(inner.square().sum(), NET.weight)


def penalised() -> None:
    output = NET(torch.ones(3, 4)).square().mean()
    torch.autograd.grad(output, NET.weight, retain_graph=True)
    output.backward()


@pytest.mark.parametrize("step", [transformed, adapted, asked, asked_twice])
def test_a_step_ends_with_its_gradient(step: Callable[[], None]) -> None:
    counted = Counted()
    with counted.watching():
        for _ in range(4):
            step()
    # What the first one ends is set-up.
    assert counted.ended == 3


def test_a_program_that_goes_backward_ends_its_steps_there() -> None:
    counted = Counted()
    with counted.watching():
        NET(torch.ones(3, 4)).sum().backward()
        for _ in range(3):
            penalised()
    assert counted.ended == 3


def test_gradients_end_no_step_of_an_optimizer() -> None:
    counted = Counted()
    with counted.watching():
        optimizer = torch.optim.SGD(NET.parameters(), 0.1)
        for _ in range(3):
            asked_twice()
            NET(torch.ones(3, 4)).sum().backward()
            optimizer.step()
    assert counted.ended == 3
