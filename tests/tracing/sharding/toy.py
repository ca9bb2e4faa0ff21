"""A small decoder with the layer names of Meta's Llama, and jobs made of it."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from memplan.job.parallel import parse_parallel
from memplan.job.source import ModelSource
from memplan.tracing.records import DeviceTraits, Trace
from memplan.tracing.run import trace_job
from memplan.tracing.sharding.apply import LEAST_TORCH
from tests.tracing.jobs import source, spec

WIDTH, HEADS, WORDS, BLOCKS, BATCH, TOKENS = 32, 4, 64, 4, 2, 16
GPU = DeviceTraits(kind="cuda")
needs_recent_torch = pytest.mark.skipif(
    torch.torch_version.TorchVersion(torch.__version__) < LEAST_TORCH, reason="too old a torch"
)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.n_heads = HEADS
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, hidden):
        batch, tokens, _ = hidden.shape
        parts = (layer(hidden).view(batch, tokens, self.n_heads, -1).transpose(1, 2) for layer in self.inward())
        mixed = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        return self.wo(mixed.transpose(1, 2).reshape(batch, tokens, -1))

    def inward(self):
        return self.wq, self.wk, self.wv


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w1, self.w3, self.w2 = (
            nn.Linear(*sizes, bias=False) for sizes in ((WIDTH, 4 * WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH))
        )

    def forward(self, hidden):
        return self.w2(nn.functional.silu(self.w1(hidden)) * self.w3(hidden))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.feed_forward = Attention(), FeedForward()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, hidden):
        hidden = hidden + self.attention(self.norm1(hidden))
        return hidden + self.feed_forward(self.norm2(hidden))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words):
        hidden = self.embedding(words)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(self.norm(hidden))


def words(batch_size: int = BATCH) -> torch.Tensor:
    return torch.randint(0, WORDS, (batch_size, TOKENS))


def loss(logits: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), batch.flatten())


def decoder(model: Callable[[], nn.Module] = Decoder) -> ModelSource:
    return source(model, words, loss=loss, default_seq_len=TOKENS)


def traced(parallel: str, rank: int = 0, given: ModelSource | None = None, **options) -> Trace:
    options = {"optimizer": "sgd", "batch_size": BATCH, **options}
    job = spec(parallel=parse_parallel(parallel), **options)
    return trace_job(lambda: given or decoder(), job, GPU, rank=rank)


def parameter_bytes(trace: Trace) -> int:
    """Of the parameters that are there before the first step; FSDP gathers others for a while."""
    before = {event.storage for event in trace.events[: trace.steps[0].first_event] if event.action == "alloc"}
    found = [trace.storages[storage] for storage in before]
    return sum(each.nbytes for each in found if each.role == "parameter" and each.place == "device")


def most_alive(trace: Trace, op: str) -> int:
    """Most results of an op that live at once."""
    now = most = 0
    for event in trace.events:
        storage = trace.storages[event.storage]
        if storage.role == "intermediate" and trace.ops and event.op >= 0 and trace.ops[storage.birth].name == op:
            now += 1 if event.action == "alloc" else -1
            most = max(most, now)
    return most
