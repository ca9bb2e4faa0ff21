"""The recorded graph, saved, loaded and run again on real tensors, does what eager PyTorch does: bit for bit."""

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx
from torch import nn
from torch.utils.checkpoint import checkpoint

from memplan.job.source import ModelSource
from memplan.tracing.graph_module import graph_module, saved
from tests.tracing.jobs import source, trace


class Residual(nn.Module):
    def __init__(self, dropout: float = 0.2) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.up = nn.Linear(16, 32)
        self.down = nn.Linear(32, 16)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.drop(self.down(torch.nn.functional.gelu(self.up(self.norm(x)))))


class Checkpointed(nn.Module):
    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.first = nn.Linear(16, 16)
        # A checkpoint restores the state of the random generator, which no op of a graph can say.
        self.block = Residual(dropout=0.0)
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.block, self.first(x), use_reentrant=self.reentrant)


class Stochastic(nn.Module):
    """Draws into a tensor that is made of nothing, between draws into copies of others, as stochastic depth does."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Residual()
        self.second = Residual()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = torch.empty(x.shape[0], 1).bernoulli_(0.5)
        return self.second(self.first(x) * kept) * torch.rand(16)


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu_(self.norm(self.conv(x))).mean(dim=(2, 3)))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.block = Residual()
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.block(self.embed(ids)))


def vectors(size: int) -> torch.Tensor:
    return torch.randn(size, 16)


def images(size: int) -> torch.Tensor:
    return torch.randn(size, 3, 8, 8)


def tokens(size: int) -> torch.Tensor:
    return torch.randint(0, 50, (size, 12))


def sequences(size: int) -> torch.Tensor:
    return torch.randn(size, 5, 16)


def mean_square(output: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
    return output.pow(2).mean()


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[int], torch.Tensor]]] = {
    "residual": (Residual, vectors),
    "stochastic": (Stochastic, vectors),
    "checkpoint": (lambda: Checkpointed(reentrant=False), vectors),
    "reentrant": (lambda: Checkpointed(reentrant=True), vectors),
    "convolution": (Convolutional, images),
    "tied": (Tied, tokens),
    "encoder": (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2), sequences),
    # Not an LSTM: oneDNN's backward takes undefined tensors, which Python cannot pass.
    "gru": (lambda: LastOf(nn.GRU(16, 8, num_layers=2)), sequences),
}


class LastOf(nn.Module):
    def __init__(self, recurrent: nn.Module) -> None:
        super().__init__()
        self.recurrent = recurrent

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.recurrent(x)[0]


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=False)


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01, foreach=False)


def eager(given: ModelSource, batches: list[torch.Tensor], model: nn.Module, seed: int) -> list[float]:
    torch.manual_seed(seed)
    optimizer = given.optimizer(model.parameters())
    losses = []
    for batch in batches:
        loss = given.loss(model(batch), batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach().clone())
    return losses


@pytest.mark.parametrize("optimizer", [sgd, adam])
@pytest.mark.parametrize("case", CASES)
def test_two_steps_of_the_graph_leave_the_same_parameters_as_eager(case: str, optimizer: Callable[..., Any]) -> None:
    build, make_batch = CASES[case]
    given = source(build, make_batch, loss=mean_square, optimizer=optimizer)
    recorded = trace(given, batch_size=4)
    torch.manual_seed(0)
    model = build()
    twin = build()
    twin.load_state_dict(model.state_dict())
    batches = [make_batch(4) for _ in recorded.steps]
    eager(given, batches, model, seed=7)

    values = dict([*twin.named_parameters(), *twin.named_buffers()])
    module = graph_module(recorded)
    remaining = iter(batches)
    names = [node.meta["tensor"] for node in module.graph.nodes if node.op == "placeholder"]
    inputs = [next(remaining) if name.startswith("batch") else values[name].detach() for name in names]
    loaded = torch.load(io.BytesIO(saved(module)), weights_only=False)
    torch.manual_seed(7)
    with torch.no_grad():
        torch.fx.Interpreter(loaded).run(*inputs)
    assert len(recorded.steps) == 2
    for (name, expected), (_, actual) in zip(model.named_parameters(), twin.named_parameters(), strict=True):
        assert torch.equal(expected, actual), name
    for (name, expected), (_, actual) in zip(model.named_buffers(), twin.named_buffers(), strict=True):
        assert torch.equal(expected, actual), name
