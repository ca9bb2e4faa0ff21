"""A training loop that leaks: what it keeps, where that is made, and who holds it.

Run it: python examples/find_leak.py. Needs no GPU. The loop has the best known of all leaks, and a buffer that only
looks like one.
"""

from collections import deque

import torch
from torch import nn

import memplan


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 10))


def batch(batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(batch_size, 64), torch.randint(10, (batch_size,))


def loss(output: torch.Tensor, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return nn.functional.cross_entropy(output, batch[1])


def main() -> None:
    trained = model()
    optimizer = torch.optim.AdamW(trained.parameters())
    losses, recent = [], deque(maxlen=500)
    with memplan.LeakDetector() as detector:
        for _ in range(120):
            rows = batch(32)
            logits = trained(rows[0])
            error = loss(logits, rows)
            error.backward()
            optimizer.step()
            optimizer.zero_grad()
            recent.append(rows[0])
            losses.append((error, logits))
            detector.step()
    for report in detector.reports:
        print(report)


if __name__ == "__main__":
    main()
