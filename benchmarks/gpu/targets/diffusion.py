"""A denoising UNet: group norm, SiLU, time embedding, self- and cross-attention at the lower levels (DDPM, LDM)."""

import torch
from sizes import pick
from torch import nn
from torch.nn import functional

WIDTH, SIDE, CONTEXT = pick(full=128, tiny=32), pick(full=64, tiny=16), 256


class Residual(nn.Module):
    """Two convolutions, with the time between them."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(32, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(32, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time = nn.Linear(4 * WIDTH, outputs)
        self.shortcut = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """Images to images."""
        y = self.conv1(functional.silu(self.norm1(x)))
        y = y + self.time(functional.silu(time))[:, :, None, None]
        return self.shortcut(x) + self.conv2(functional.silu(self.norm2(y)))


class Attention(nn.Module):
    """Attention over pixels, then from pixels to the text."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(32, width)
        self.own = nn.MultiheadAttention(width, 8, batch_first=True)
        self.cross = nn.MultiheadAttention(width, 8, kdim=CONTEXT, vdim=CONTEXT, batch_first=True)

    def forward(self, x: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        """Images to images."""
        pixels = self.norm(x).flatten(2).transpose(1, 2)
        pixels = pixels + self.own(pixels, pixels, pixels, need_weights=False)[0]
        pixels = pixels + self.cross(pixels, text, text, need_weights=False)[0]
        return x + pixels.transpose(1, 2).unflatten(2, x.shape[2:])


class Network(nn.Module):
    """Two levels down, a middle, two levels up."""

    def __init__(self) -> None:
        super().__init__()
        wide = 2 * WIDTH
        self.time = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.SiLU(), nn.Linear(4 * WIDTH, 4 * WIDTH))
        self.stem = nn.Conv2d(4, WIDTH, 3, padding=1)
        self.down1, self.shrink = Residual(WIDTH, WIDTH), nn.Conv2d(WIDTH, WIDTH, 3, 2, 1)
        self.down2, self.attention2 = Residual(WIDTH, wide), Attention(wide)
        self.middle, self.attention = Residual(wide, wide), Attention(wide)
        self.up2, self.attention3 = Residual(2 * wide, wide), Attention(wide)
        self.grow = nn.Conv2d(wide, WIDTH, 3, padding=1)
        self.up1 = Residual(2 * WIDTH, WIDTH)
        self.head = nn.Sequential(nn.GroupNorm(32, WIDTH), nn.SiLU(), nn.Conv2d(WIDTH, 4, 3, padding=1))

    def forward(self, noisy: torch.Tensor, step: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        """Noisy latents, diffusion steps and text to the noise."""
        frequencies = torch.exp(torch.arange(WIDTH // 2, device=step.device) * (-9.21 / (WIDTH // 2)))
        angles = step[:, None].float() * frequencies
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1).to(noisy.dtype))
        one = self.down1(self.stem(noisy), time)
        two = self.attention2(self.down2(self.shrink(one), time), text)
        y = self.attention(self.middle(two, time), text)
        y = self.attention3(self.up2(torch.cat([y, two], 1), time), text)
        y = self.grow(functional.interpolate(y, scale_factor=2.0, mode="nearest"))
        return self.head(self.up1(torch.cat([y, one], 1), time))


def model() -> nn.Module:
    """The network."""
    return Network()


def batch(batch_size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Latents, steps, text and noise."""
    images = torch.randn(batch_size, 4, SIDE, SIDE)
    return images, torch.randint(1000, (batch_size,)), torch.randn(batch_size, 77, CONTEXT), torch.randn_like(images)


def loss(output: torch.Tensor, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Mean squared error against the noise."""
    return functional.mse_loss(output, batch[3])
