"""Variational autoencoder with strided and nearest-upsampled convolutions, instance norm and reparametrisation."""

import torch
from torch import nn
from torch.nn import functional


class Autoencoder(nn.Module):
    """Encoder, Gaussian bottleneck, decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 32, 3, 2, 1), nn.InstanceNorm2d(32), nn.ELU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ELU()
        )
        self.moments = nn.Conv2d(64, 32, 1)
        self.decoder = nn.Sequential(
            nn.Conv2d(16, 64, 3, 1, 1),
            nn.ELU(),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(64, 32, 3, 1, 1),
            nn.ELU(),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(32, 3, 3, 1, 1),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images to the loss itself."""
        mean, log_variance = self.moments(self.encoder(images)).chunk(2, 1)
        latent = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        divergence = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).mean()
        return functional.mse_loss(self.decoder(latent), images) + 1e-3 * divergence


def model() -> nn.Module:
    """The network."""
    return Autoencoder()


def batch(batch_size: int, seq_len: int | None = None) -> torch.Tensor:
    """Images; the model's output is the loss."""
    del seq_len
    return torch.randn(batch_size, 3, 64, 64)
