"""A speech net: convolutions over time and frequency, recurrent layers, CTC loss; no block repeats."""

import torch
from torch import nn
from torch.nn import functional

SIGNS, WIDTH, SPOKEN = 29, 128, 8


class Speech(nn.Module):
    """As Deep Speech 2 (Amodei et al. 2015, arXiv:1512.02595), small."""

    def __init__(self) -> None:
        super().__init__()
        self.ears = nn.Sequential(
            *(nn.Conv2d(1, 16, (11, 11), (2, 2), (5, 5)), nn.GroupNorm(4, 16), nn.Hardtanh(0, 20)),
            *(nn.Conv2d(16, 16, (11, 11), (2, 1), (5, 5)), nn.GroupNorm(4, 16), nn.Hardtanh(0, 20)),
        )
        self.rnn = nn.GRU(16 * 20, WIDTH, 2, batch_first=True, bidirectional=True)
        self.head = nn.Sequential(nn.LayerNorm(2 * WIDTH), nn.Linear(2 * WIDTH, SIGNS))

    def forward(self, sounds: torch.Tensor) -> torch.Tensor:
        """Spectrograms to log-probabilities of signs."""
        heard = self.ears(sounds).flatten(1, 2).transpose(1, 2)
        return self.head(self.rnn(heard)[0]).log_softmax(-1)


def model() -> nn.Module:
    """The network."""
    return Speech()


def batch(batch_size: int, seq_len: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Spectrograms of 80 bands, and what was said."""
    return torch.randn(batch_size, 1, 80, seq_len or 64), torch.randint(1, SIGNS, (batch_size, SPOKEN))


def loss(output: torch.Tensor, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Of all ways to say it."""
    samples, steps = output.shape[:2]
    lengths = torch.full((samples,), steps), torch.full((samples,), SPOKEN)
    return functional.ctc_loss(output.transpose(0, 1), batch[1], *lengths)
