"""Trains a GPT on random tokens. memplan calls ``small``, ``medium``, ``batch`` and ``loss``, but never ``main``."""

import sys

import torch
from model import GPT, Config
from torch import nn
from torch.nn import functional

SMALL = Config(layers=6, heads=8, width=512)
MEDIUM = Config(layers=24, heads=16, width=1024)


def small() -> nn.Module:
    return GPT(SMALL)


def medium() -> nn.Module:
    return GPT(MEDIUM)


def batch(batch_size: int, seq_len: int = 1024) -> torch.Tensor:
    return torch.randint(SMALL.vocabulary, (batch_size, seq_len))


def loss(output: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(output[:, :-1].flatten(0, 1), batch[:, 1:].flatten())


def main(name: str = "small", batch_size: int = 12, steps: int = 10) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = {"small": small, "medium": medium}[name]().to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(steps):
        tokens = batch(batch_size).to(device)
        with torch.autocast(device, dtype=torch.bfloat16):
            step_loss = loss(model(tokens), tokens)
        step_loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {step_loss.item():.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
