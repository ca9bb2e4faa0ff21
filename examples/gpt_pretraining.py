"""Pretraining of a GPT-2-sized language model (124 million parameters), written by hand on PyTorch's fused attention.

Try it with

    memplan estimate examples/gpt_pretraining.py --gpu h100-80g
    memplan estimate examples/gpt_pretraining.py --gpu rtx-4090 --batch-size 16 --precision bf16-mixed
"""

import torch
from torch import nn
from torch.nn import functional

VOCABULARY, CONTEXT = 50304, 1024
LAYERS, HEADS, WIDTH = 12, 12, 768


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(x).split(WIDTH, dim=-1)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """Tokens to logits; the output layer shares the embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def model() -> nn.Module:
    return GPT()


def batch(batch_size: int, seq_len: int = CONTEXT) -> torch.Tensor:
    return torch.randint(VOCABULARY, (batch_size, seq_len))


def loss(output: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(output[:, :-1].flatten(0, 1), batch[:, 1:].flatten())
