# ruff: noqa: D101, D102 - a program as its author would write it; the module docstring says what it is.
"""The program behind ``JasperSolt__EoR_NN_snapshot`` (github.com/JasperSolt/EoR_NN, 2025-02-05, torch below 2.7).

An image is changed until a small convolutional network, whose weights are frozen, says something else of it. Written
anew from counterfactuals.py and regressors/latent_cnn.py at commit 6686e9f; sizes and line numbers in the snapshot's
frames tell what another configuration said (30 slices of 256 x 256) and that no mask was used yet. Anomaly detection is
on. The reductions split their work in 144 blocks, two for each of 72 multiprocessors of 1,024 threads: a Turing card
with the TU102 chip (Quadro RTX 6000 and 8000, Titan RTX). No torch is named; by 2.2, 2.3 and 2.6 it asks for the same.
"""

from collections.abc import Iterator

import torch
from torch import nn

SLICES, SIDE = 30, 256
CHANNELS, FEATURES = (16, 32, 64), (200, 100, 20)
EPOCHS = 10


class LatentCNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.maxpool, self.relu, self.flatten, self.dropout = nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2)
        widths = (SLICES, *CHANNELS)
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, after, 3, padding="same") for before, after in zip(widths, CHANNELS, strict=False)
        )
        self.norms = nn.ModuleList(map(nn.BatchNorm2d, CHANNELS))
        self.global_maxpool = nn.MaxPool2d(SIDE // 2 ** len(CHANNELS))
        features = (CHANNELS[-1], *FEATURES)
        self.linears = nn.ModuleList(
            nn.Linear(before, after) for before, after in zip(features, FEATURES, strict=False)
        )
        self.out = nn.Linear(FEATURES[-1], 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = norm(self.relu(convolution(x)))
            x = self.maxpool(x)
        x = self.global_maxpool(x)
        x = self.flatten(x)
        for linear in self.linears:
            x = self.relu(linear(self.dropout(x)))
        result: torch.Tensor = self.out(x)
        return result


class CounterfactualLoss(nn.Module):
    def forward(self, y: torch.Tensor, y_prime: torch.Tensor, x: torch.Tensor, x_prime: torch.Tensor) -> torch.Tensor:
        return self.d_image(x_prime, x) - self.d_label(y_prime, y)

    def d_image(self, x_prime: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return ((x_prime - x) ** 2).mean()

    def d_label(self, y_prime: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = (y_prime - y) ** 2
        return result


def search(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Iterator[None]:
    """Yield after every epoch."""
    torch.autograd.set_detect_anomaly(True)
    x_prime = x + torch.randn_like(x)
    x, x_prime = x.to("cuda"), x_prime.to("cuda")
    x_prime.requires_grad = True
    optimizer = torch.optim.Adam([x_prime], lr=0.1)
    lossfn = CounterfactualLoss()
    for _ in range(EPOCHS):
        y_prime = model(x_prime)
        total_loss = lossfn(y, y_prime, x, x_prime)
        x_loss = lossfn.d_image(x_prime, x).detach()
        y_loss = -lossfn.d_label(y_prime, y).detach()
        total_loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        model.zero_grad()
        yield
    del x_loss, y_loss
