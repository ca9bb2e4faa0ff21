"""Generator against critic: two optimizers, two backward passes in one step, transposed convolutions."""

from collections.abc import Iterable

import torch
from torch import nn
from torch.nn import functional


class Gan(nn.Module):
    """Both networks and the critic's own optimizer."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(
            nn.ConvTranspose2d(64, 128, 4, 1, 0, bias=False),
            nn.BatchNorm2d(128),
            nn.ReLU(True),
            nn.ConvTranspose2d(128, 64, 4, 2, 1, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(True),
            nn.ConvTranspose2d(64, 32, 4, 2, 1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(True),
            nn.ConvTranspose2d(32, 3, 4, 2, 1),
            nn.Tanh(),
        )
        self.critic = nn.Sequential(
            nn.Conv2d(3, 32, 4, 2, 1),
            nn.LeakyReLU(0.2, True),
            nn.Conv2d(32, 64, 4, 2, 1),
            nn.LeakyReLU(0.2, True),
            nn.Conv2d(64, 128, 4, 2, 1),
            nn.LeakyReLU(0.2, True),
            nn.Conv2d(128, 1, 4),
            nn.Flatten(0),
        )
        for parameter in self.critic.parameters():
            parameter.of_critic = True
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=2e-4, betas=(0.5, 0.999))


def model() -> nn.Module:
    """Both networks."""
    return Gan()


def batch(batch_size: int, seq_len: int | None = None) -> torch.Tensor:
    """Real images."""
    del seq_len
    return torch.rand(batch_size, 3, 32, 32) * 2 - 1


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Adam over the generator alone; the critic has its own."""
    own = [parameter for parameter in parameters if not hasattr(parameter, "of_critic")]
    return torch.optim.Adam(own, lr=2e-4, betas=(0.5, 0.999))


def train_step(model: Gan, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
    """One step of the critic, then one of the generator."""
    ones, zeros = torch.ones(len(batch), device=batch.device), torch.zeros(len(batch), device=batch.device)
    fake = model.generator(torch.randn(len(batch), 64, 1, 1, device=batch.device))
    model.critic_optimizer.zero_grad()
    real_loss = functional.binary_cross_entropy_with_logits(model.critic(batch), ones)
    fake_loss = functional.binary_cross_entropy_with_logits(model.critic(fake.detach()), zeros)
    (real_loss + fake_loss).backward()
    model.critic_optimizer.step()
    optimizer.zero_grad()
    functional.binary_cross_entropy_with_logits(model.critic(fake), ones).backward()
    optimizer.step()
