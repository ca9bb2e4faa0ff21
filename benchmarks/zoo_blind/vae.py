"""A variational autoencoder on vectors."""

import torch
from torch import nn

Output = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class Vae(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(1024, 400)
        self.mean = nn.Linear(400, 64)
        self.variance = nn.Linear(400, 64)
        self.widen = nn.Linear(64, 400)
        self.decode = nn.Linear(400, 1024)

    def forward(self, x: torch.Tensor) -> Output:
        hidden = torch.tanh(self.encode(x))
        mean, variance = self.mean(hidden), self.variance(hidden)
        code = mean + torch.randn_like(variance) * torch.exp(0.5 * variance)
        return self.decode(torch.relu(self.widen(code))), mean, variance


def model() -> nn.Module:
    return Vae()


def batch(batch_size: int, seq_len: int | None = None) -> torch.Tensor:
    return torch.rand(batch_size, 1024)


def loss(output: Output, batch: torch.Tensor) -> torch.Tensor:
    image, mean, variance = output
    distance = nn.functional.binary_cross_entropy_with_logits(image, batch, reduction="sum")
    return distance - 0.5 * torch.sum(1 + variance - mean.pow(2) - variance.exp())
