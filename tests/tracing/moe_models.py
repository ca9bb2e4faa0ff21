"""Small mixtures of experts as people write them: loops, sorted tokens, padding, capacities with tokens dropped."""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional

TOKENS, EXPERTS, TOP, WIDTH, INNER = 64, 8, 2, 32, 64
CAPACITY = TOKENS * TOP // EXPERTS * 5 // 4
"""Rows that an expert takes where tokens are dropped: a capacity factor of 1.25."""


class Mixture(nn.Module):
    """A loop that looks for each expert's tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, INNER), nn.ReLU(), nn.Linear(INNER, WIDTH)) for _ in range(EXPERTS)
        )

    def chosen(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weights, experts = torch.topk(self.router(x).softmax(-1), TOP, dim=-1)
        return weights, experts

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.chosen(x)
        output = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            token, slot = torch.where(chosen == index)
            output.index_add_(0, token, expert(x[token]) * weights[token, slot, None])
        return output


class OneHot(Mixture):
    """Mixtral's loop before transformers 5."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.chosen(x)
        output = torch.zeros_like(x)
        mask = functional.one_hot(chosen, EXPERTS).permute(2, 1, 0)
        for index, expert in enumerate(self.experts):
            slot, token = torch.where(mask[index])
            output.index_add_(0, token, expert(x[token]) * weights[token, slot, None])
        return output


class Sorted(Mixture):
    """DeepSeek's way: tokens in the order of their experts, cut by counts."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.chosen(x)
        order = chosen.flatten().argsort()
        counts = torch.bincount(chosen.flatten(), minlength=EXPERTS).tolist()
        parts = x[order // TOP].split(counts)
        rows = torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True)])
        back = torch.empty_like(rows)
        back[order] = rows
        return (back.view(-1, TOP, WIDTH) * weights.unsqueeze(-1)).sum(1)


class Padded(Mixture):
    """Every expert has as many rows as the busiest: (experts, most, width)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.chosen(x)
        flat = chosen.flatten()
        order = flat.argsort()
        counts = torch.bincount(flat, minlength=EXPERTS)
        place = torch.arange(flat.numel()) - (counts.cumsum(0) - counts)[flat[order]]
        rows = x.new_zeros(EXPERTS, int(counts.max()), WIDTH)
        rows[flat[order], place] = x[order // TOP]
        output = torch.stack([expert(row) for expert, row in zip(self.experts, rows, strict=True)])
        back = torch.empty(flat.numel(), WIDTH)
        back[order] = output[flat[order], place]
        return (back.view(-1, TOP, WIDTH) * weights.unsqueeze(-1)).sum(1)


class Dispatched(Mixture):
    """GShard's and Switch's way: (experts, capacity, width) by products with a mask, and tokens beyond it dropped."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.chosen(x)
        hot = functional.one_hot(chosen, EXPERTS).sum(1)
        place = (hot.cumsum(0) * hot - 1).clamp(-1, CAPACITY) + 1
        kept = functional.one_hot(place, CAPACITY + 2)[..., 1 : CAPACITY + 1].to(x.dtype)
        rows = torch.einsum("tec,tw->ecw", kept, x)
        output = torch.stack([expert(row) for expert, row in zip(self.experts, rows, strict=True)])
        gates = torch.zeros(TOKENS, EXPERTS).scatter(1, chosen, weights)
        return torch.einsum("tec,ecw,te->tw", kept, output, gates)


class Dropping(Mixture):
    """A loop that keeps the first tokens of each expert, padded to its capacity."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.chosen(x)
        output = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            token, slot = (each[:CAPACITY] for each in torch.where(chosen == index))
            rows = x.new_zeros(CAPACITY, WIDTH)
            rows[: len(token)] = x[token]
            output.index_add_(0, token, expert(rows)[: len(token)] * weights[token, slot, None])
        return output


class Selected(Mixture):
    """Rows below the capacity by a mask, of which nobody knows how many there are."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.chosen(x)
        flat = chosen.flatten()
        hot = functional.one_hot(flat, EXPERTS)
        place = (hot.cumsum(0) * hot).sum(1) - 1
        keep = place < CAPACITY
        rows = x.new_zeros(EXPERTS, CAPACITY, WIDTH)
        rows[flat[keep], place[keep]] = x.repeat_interleave(TOP, 0)[keep]
        output = torch.stack([expert(row) for expert, row in zip(self.experts, rows, strict=True)])
        back = torch.zeros(flat.numel(), WIDTH)
        back[keep] = output[flat[keep], place[keep]]
        return (back.view(-1, TOP, WIDTH) * weights.unsqueeze(-1)).sum(1)


def forced(indices: torch.Tensor) -> torch.Tensor:
    """A batch for a router with the weights ``torch.eye``: its first columns are the scores. (tokens, width)."""
    rows = torch.zeros(len(indices), WIDTH)
    scores = torch.arange(TOP, 0, -1.0).expand(len(indices), TOP) + 10
    return rows.scatter(1, indices, scores)


def batch(_: int = 1) -> torch.Tensor:
    return torch.randn(TOKENS, WIDTH)


def sgd(parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
    """One that changes nothing, so that choices stay."""
    return torch.optim.SGD(parameters, lr=0.0, foreach=False)


def loss(output: torch.Tensor, _: object) -> torch.Tensor:
    return output.square().sum()
