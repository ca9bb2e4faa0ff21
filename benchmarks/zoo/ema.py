"""A multilayer perceptron with an exponential moving average of its weights (self-distillation)."""

import copy

import torch
from torch import nn
from torch.nn import functional


class Student(nn.Module):
    """A network and the slow copy that teaches it."""

    def __init__(self) -> None:
        super().__init__()
        self.online = nn.Sequential(
            nn.Linear(256, 1024), nn.BatchNorm1d(1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 64)
        )
        self.slow = copy.deepcopy(self.online).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The fast network."""
        return self.online(x)


def model() -> nn.Module:
    """Both networks."""
    return Student()


def batch(batch_size: int, seq_len: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Two views of the same samples."""
    del seq_len
    first = torch.randn(batch_size, 256)
    return first, first + 0.1 * torch.randn_like(first)


def train_step(model: Student, optimizer: torch.optim.Optimizer, batch: tuple[torch.Tensor, torch.Tensor]) -> float:
    """One distillation step and the update of the average."""
    optimizer.zero_grad()
    with torch.no_grad():
        teacher = model.slow(batch[1])
    loss = 1 - functional.cosine_similarity(model(batch[0]), teacher).mean()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(model.slow.parameters(), model.online.parameters(), strict=True):
            slow.lerp_(fast, 0.01)
    return 0.0
