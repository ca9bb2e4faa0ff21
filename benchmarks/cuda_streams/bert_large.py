# ruff: noqa: D101, D102, RET504 - a program as its author would write it; the module docstring says what it is.
"""The program behind ``Maphsge4__select_n`` (github.com/Maphsge4/select_n, torch 2.1, an H100's workspaces).

BERT large with a head for masked words, two batches of random words without gradients, as the repository's copy of
transformers runs it. Written anew from that copy and from the line numbers in the snapshot's frames; what had to be
kept is the order of tensor ops and how long Python variables hold their results.
"""

import math

import torch
from torch import nn

LAYERS, WIDTH, INNER, HEADS, VOCABULARY = 24, 1024, 4096, 16, 30_522
BATCH, LENGTH, MASKED = 8, 512, 76


class Embeddings(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.types = nn.Embedding(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.register_buffer("position_ids", torch.arange(LENGTH).expand((1, -1)))
        self.register_buffer("type_ids", torch.zeros(1, LENGTH, dtype=torch.long))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        words = self.words(tokens)
        types = self.types(self.type_ids.expand(tokens.shape))
        embeddings = words + types
        positions = self.positions(self.position_ids)
        embeddings += positions
        embeddings = self.norm(embeddings)
        return embeddings


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(BATCH, LENGTH, HEADS, -1).permute(0, 2, 1, 3)

    def forward(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        mixed = self.query(hidden)
        key = self.heads(self.key(hidden))
        value = self.heads(self.value(hidden))
        query = self.heads(mixed)
        scores = torch.matmul(query, key.transpose(-1, -2))
        scores = scores / math.sqrt(WIDTH // HEADS)
        scores = scores + mask
        shares = nn.functional.softmax(scores, dim=-1)
        context = torch.matmul(shares, value)
        context = context.permute(0, 2, 1, 3).contiguous()
        return context.view(BATCH, LENGTH, WIDTH)


class Residual(nn.Module):
    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, hidden: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        hidden = self.dense(hidden)
        hidden = self.norm(hidden + before)
        return hidden


class Intermediate(nn.Module):
    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.dense = nn.Linear(WIDTH, outputs)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = self.dense(hidden)
        hidden = nn.functional.gelu(hidden)
        return hidden


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.added = SelfAttention(), Residual(WIDTH)
        self.inner, self.output = Intermediate(INNER), Residual(INNER)

    def attend(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        context = self.attention(hidden, mask)
        return self.added(context, hidden)

    def feed(self, attended: torch.Tensor) -> torch.Tensor:
        inner = self.inner(attended)
        return self.output(inner, attended)

    def forward(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        attended = self.attend(hidden, mask)
        return self.feed(attended)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            outputs = layer(hidden, mask)
            hidden = outputs
        return hidden


class Head(nn.Module):
    def __init__(self, words: nn.Embedding) -> None:
        super().__init__()
        self.transform, self.norm = Intermediate(WIDTH), nn.LayerNorm(WIDTH)
        self.decoder = nn.Linear(WIDTH, VOCABULARY)
        self.decoder.weight = words.weight

    def transformed(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = self.transform(hidden)
        hidden = self.norm(hidden)
        return hidden

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = self.transformed(hidden)
        hidden = self.decoder(hidden)
        return hidden


class Bert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embeddings, self.encoder = Embeddings(), Encoder()
        self.head = Head(self.embeddings.words)

    def encoded(self, tokens: torch.Tensor) -> torch.Tensor:
        # A warning about padding, which looks at the first and the last word of every row.
        assert 0 in tokens[:, [-1, 0]] or True
        mask = torch.ones((BATCH, LENGTH), device=tokens.device)
        added = (1.0 - mask[:, None, None, :]) * torch.finfo(torch.float32).min
        embedded = self.embeddings(tokens)
        return self.encoder(embedded, added)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        encoded = self.encoded(tokens)
        return self.head(encoded)
