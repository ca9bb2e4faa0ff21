"""What a training run takes beside what was predicted of it: a small GPT on the CPU. This file is both sides' target.

memplan estimate examples/profile_training.py --gpu cpu --batch-size 8 --timeline -f json=plan.json
OMP_NUM_THREADS=1 python examples/profile_training.py run.json
memplan report run.json --plan plan.json -f text -f html=timeline.html
"""

import sys
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import memplan

VOCABULARY, WIDTH, HEADS, LAYERS, LENGTH = 2048, 128, 4, 4, 64


class Block(nn.Module):
    """Attention and a fourfold MLP, each behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        queries, keys, values = self.qkv(self.norms[0](x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        heads = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        x = x + self.out(heads.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


class Gpt(nn.Module):
    """Tokens to logits."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    @memplan.profile("forward")
    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def model() -> nn.Module:
    return Gpt()


def batch(batch_size: int) -> torch.Tensor:
    return torch.randint(VOCABULARY, (batch_size, LENGTH))


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, tokens: torch.Tensor) -> Any:
    # Regions may stay in the code: where nobody records they cost less than a microsecond.
    with memplan.profile("loss"):
        logits = model(tokens)
        loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    with memplan.profile("backward"):
        loss.backward()
    with memplan.profile("optimizer"):
        optimizer.step()
        optimizer.zero_grad()
    return loss.detach()


def main(file: str, steps: int = 3) -> None:
    torch.set_num_threads(1)
    with memplan.profile("training", depth="full", device="cpu") as run:
        network = model()
        optimizer = torch.optim.AdamW(network.parameters())
        for _ in range(steps):
            tokens = None  # The old batch goes before the next is made.
            tokens = batch(8)
            run.step()  # What a plan calls a step begins once its batch is there.
            loss = train_step(network, optimizer, tokens)
        print(f"loss {loss.item():.3f}")
    print(f"peak {run.recording.peak_bytes / 2**20:.1f} MiB, saved to {run.recording.save(file)}")


if __name__ == "__main__":
    main(*sys.argv[1:2] or ["run.json"])
