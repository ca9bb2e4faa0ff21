"""Small training jobs of all shapes: chains, residual networks, skips over many blocks, encoder and decoder."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from memplan.hardware.catalog import load_profile
from memplan.hardware.profile import GpuProfile
from memplan.job.source import ModelSource
from memplan.job.spec import FileTarget, JobSpec

TOKENS, WIDTH, WORDS = 48, 32, 96


def job(**options: Any) -> JobSpec:
    return JobSpec(target=FileTarget(path=Path("model.py")), **({"batch_size": 4} | options))


def device(name: str) -> GpuProfile:
    return load_profile(name)


def source(model: Callable[[], nn.Module], batch: Callable[..., Any], **parts: Any) -> ModelSource:
    return ModelSource(model=model, batch=lambda size, length: batch(size), optimizer=sgd, **parts)


def sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=False)


class TransformerBlock(nn.Module):
    """Pre-norm attention and MLP with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(self.first(x)).chunk(3, -1))
        attended = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.second(x))


class Transformer(nn.Module):
    def __init__(self, depth: int = 4, *, with_mask: bool = True) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(TransformerBlock() for _ in range(depth))
        self.head = nn.Linear(WIDTH, WORDS)
        self.with_mask = with_mask

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embed(words)
        # Made anew in every forward and given to every block: it lives as long as one of them holds it.
        mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool, device=words.device).tril() if self.with_mask else None
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(x)


def words(size: int) -> torch.Tensor:
    return torch.randint(0, WORDS, (size, TOKENS))


def next_word(output: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(output.flatten(0, 1), batch.flatten())


class Residual(nn.Module):
    """A residual block with batch norms and in-place ReLUs."""

    def __init__(self, inner: int, outer: int, stride: int = 1) -> None:
        super().__init__()
        self.one = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.two = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.first, self.second = nn.BatchNorm2d(outer), nn.BatchNorm2d(outer)
        self.relu = nn.ReLU(inplace=True)
        self.down = nn.Conv2d(inner, outer, 1, stride) if stride > 1 else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.second(self.two(self.relu(self.first(self.one(x)))))
        y += x if self.down is None else self.down(x)
        return self.relu(y)


def residual_network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 1, 1),
        nn.Sequential(Residual(8, 8), Residual(8, 8)),
        nn.Sequential(Residual(8, 16, 2), Residual(16, 16)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )


def pictures(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(size, 3, 32, 32), torch.randint(0, 10, (size,))


class Convolutions(nn.Module):
    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inner, outer, 3, 1, 1),
            nn.GroupNorm(4, outer),
            nn.SiLU(),
            nn.Conv2d(outer, outer, 3, 1, 1),
            nn.SiLU(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


class UNet(nn.Module):
    """What a block going down makes, a block going up takes much later."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(Convolutions(a, b) for a, b in ((3, 8), (8, 16), (16, 32)))
        self.up = nn.ModuleList(Convolutions(a, b) for a, b in ((64, 16), (32, 8), (16, 8)))
        self.head = nn.Conv2d(8, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = functional.avg_pool2d(x, 2)
        for block in self.up:
            x = functional.interpolate(x, scale_factor=2.0)
            x = block(torch.cat([x, skips.pop()], 1))
        return self.head(x)


def image(output: torch.Tensor, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return functional.mse_loss(output, batch[0])


class Translator(nn.Module):
    """Every block of the decoder takes the encoder's result."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.encoder = nn.ModuleList(TransformerBlock() for _ in range(2))
        self.decoder = nn.ModuleList(
            nn.TransformerDecoderLayer(WIDTH, 4, 64, batch_first=True, dropout=0.1) for _ in range(3)
        )
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        memory = self.embed(words)
        for layer in self.encoder:
            memory = layer(memory)
        x = self.embed(words)
        for layer in self.decoder:
            x = layer(x, memory)
        return self.head(x)


JOBS: dict[str, Callable[[], ModelSource]] = {
    "transformer": lambda: source(Transformer, words, loss=next_word),
    "residual": lambda: source(
        residual_network, pictures, loss=lambda output, batch: functional.cross_entropy(output, batch[1])
    ),
    "unet": lambda: source(UNet, pictures, loss=image),
    "translator": lambda: source(Translator, words, loss=next_word),
}


def _causal(config: str, model: str, **options: Any) -> ModelSource:
    transformers = pytest.importorskip("transformers")

    def build() -> nn.Module:
        made = getattr(transformers, config)(
            vocab_size=WORDS, use_cache=False, bos_token_id=0, eos_token_id=0, **options
        )
        built: nn.Module = getattr(transformers, model)(made)
        return built

    return source(build, lambda size: {"input_ids": (ids := words(size)), "labels": ids})


HUGGING_FACE: dict[str, Callable[[], ModelSource]] = {
    "gpt2": lambda: _causal("GPT2Config", "GPT2LMHeadModel", n_layer=3, n_embd=WIDTH, n_head=4, n_positions=TOKENS),
    "llama": lambda: _causal(
        "LlamaConfig",
        "LlamaForCausalLM",
        num_hidden_layers=3,
        hidden_size=WIDTH,
        intermediate_size=3 * WIDTH,
        num_attention_heads=4,
        num_key_value_heads=2,
    ),
    "mixtral": lambda: _causal(
        "MixtralConfig",
        "MixtralForCausalLM",
        num_hidden_layers=3,
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
    ),
    "t5": lambda: _causal(
        "T5Config",
        "T5ForConditionalGeneration",
        num_layers=2,
        num_decoder_layers=2,
        d_model=WIDTH,
        d_ff=64,
        d_kv=8,
        num_heads=4,
        decoder_start_token_id=0,
        pad_token_id=0,
    ),
}
