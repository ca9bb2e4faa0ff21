"""Llama 3 8B as torchtitan had it in January 2025, written down op by op where an op decides what is kept.

Source: torchtitan/models/llama/model.py and torchtitan/models/norms.py (BSD 3-Clause). Names of modules are theirs.
"""

import torch
from torch import nn
from torch.nn import functional

WIDTH, LAYERS, HEADS, GROUPS, HIDDEN, VOCABULARY = 4096, 32, 32, 8, 14336, 128_256
"""``llama3_configs["8B"]``, and the tokens of Llama 3's tokenizer."""
HEAD = WIDTH // HEADS
BASE = 500_000.0
"""Of the rotary angles."""
EPSILON = 1e-5


def angles(length: int) -> torch.Tensor:
    """``precompute_freqs_cis``: (length, HEAD / 2) complex numbers."""
    steps = 1.0 / BASE ** (torch.arange(0, HEAD, 2).float() / HEAD)
    turns = torch.outer(torch.arange(length), steps).float()
    return torch.polar(torch.ones_like(turns), turns)


def rotated(states: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """``apply_rotary_emb`` for queries or keys, up to what is left in fp32."""
    pairs = torch.view_as_complex(states.float().reshape(*states.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(3)


def repeated(states: torch.Tensor) -> torch.Tensor:
    """``repeat_kv``: (batch, length, GROUPS, HEAD) → (batch, length, HEADS, HEAD), a copy."""
    batch, length, groups, width = states.shape
    wide = torch.unsqueeze(states, dim=3).expand(batch, length, groups, HEADS // GROUPS, width)
    return wide.reshape(batch, length, HEADS, width)


class RMSNorm(nn.Module):
    """``norm_type = "rmsnorm"``, torchtitan's own until March 2025 (pull request 985): normalised in fp32."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise, cast, and scale."""
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)).type_as(x) * self.weight


class Attention(nn.Module):
    """Grouped queries, all heads' keys and values made before the kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.wq = nn.Linear(WIDTH, HEADS * HEAD, bias=False)
        self.wk = nn.Linear(WIDTH, GROUPS * HEAD, bias=False)
        self.wv = nn.Linear(WIDTH, GROUPS * HEAD, bias=False)
        self.wo = nn.Linear(HEADS * HEAD, WIDTH, bias=False)

    def forward(self, x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        """Attend causally."""
        batch, length, _ = x.shape
        xq, xk, xv = self.wq(x), self.wk(x), self.wv(x)
        xq, xk, xv = (each.view(batch, length, -1, HEAD) for each in (xq, xk, xv))
        turns = turns[:length].view(1, length, 1, HEAD // 2)
        # Both are rotated before either is cast, as there.
        wide_q, wide_k = rotated(xq, turns), rotated(xk, turns)
        xq, xk = wide_q.type_as(xq), wide_k.type_as(xk)
        del wide_q, wide_k
        keys, values = repeated(xk), repeated(xv)
        xq, keys, values = (each.transpose(1, 2) for each in (xq, keys, values))
        output = functional.scaled_dot_product_attention(xq, keys, values, is_causal=True)
        made: torch.Tensor = self.wo(output.transpose(1, 2).contiguous().view(batch, length, -1))
        return made


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self) -> None:
        super().__init__()
        self.w1 = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.w2 = nn.Linear(HIDDEN, WIDTH, bias=False)
        self.w3 = nn.Linear(WIDTH, HIDDEN, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Gate, and back to the width."""
        made: torch.Tensor = self.w2(functional.silu(self.w1(x)) * self.w3(x))
        return made


class TransformerBlock(nn.Module):
    """One layer."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.feed_forward = FeedForward()
        self.attention_norm = RMSNorm()
        self.ffn_norm = RMSNorm()

    def forward(self, x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        """Attention, then the gate, each beside what it is added to."""
        h = x + self.attention(self.attention_norm(x), turns)
        made: torch.Tensor = h + self.feed_forward(self.ffn_norm(h))
        return made


class Transformer(nn.Module):
    """The whole.

    Args:
        length: ``max_seq_len``, which torchtitan sets to the run's sequence length.
    """

    def __init__(self, length: int) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCABULARY, WIDTH)
        self.register_buffer("freqs_cis", angles(length), persistent=True)
        self.layers = nn.ModuleDict({str(index): TransformerBlock() for index in range(LAYERS)})
        self.norm = RMSNorm()
        self.output = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits."""
        h = self.tok_embeddings(tokens)
        for layer in self.layers.values():
            h = layer(h, self.freqs_cis)
        logits: torch.Tensor = self.output(self.norm(h))
        return logits
