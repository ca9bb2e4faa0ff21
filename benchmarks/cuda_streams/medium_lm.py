# ruff: noqa: D101, D102, D103 - a program as its author would write it; the module docstring says what it is.
"""The program behind the ``wedsonlin_medium_*`` snapshots (github.com/Wedsonlin/assignment2-systems, torch 2.11).

A decoder of 24 layers in float32 with hand-written attention, softmax, loss and AdamW. Written anew from the
repository's model at commit 882ca8d and from the line numbers in the snapshots' frames; what had to be kept is the
order of tensor ops and how long Python variables hold their results.
"""

import math

import torch
from torch import nn

LAYERS, WIDTH, INNER, HEADS, VOCABULARY, BATCH = 24, 1024, 4096, 16, 10_000, 4
WARM_UP_STEPS = 5


class Linear(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("...i,oi->...o", x, self.weight)


class Embedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(VOCABULARY, WIDTH))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.weight[tokens, :]


class RMSNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        dtype = x.dtype
        x = x.to(torch.float32)
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        x = x * scale
        return (self.weight * x).to(dtype)


class Rotary(nn.Module):
    def __init__(self, context: int) -> None:
        super().__init__()
        self.register_buffer("table", torch.empty(2, context, WIDTH // HEADS // 2), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        even, odd = x.unflatten(-1, (-1, 2)).movedim(-1, 0).unbind(0)
        cosine, sine = self.table[:, : x.size(-2), :].unbind(0)
        rotated_even = cosine * even - sine * odd
        rotated_odd = sine * even + cosine * odd
        return torch.concat((rotated_even, rotated_odd), dim=-1)


def softmax(x: torch.Tensor) -> torch.Tensor:
    shifted = x - torch.max(x, dim=-1, keepdim=True)[0]
    powers = torch.exp(shifted)
    return powers / torch.sum(powers, dim=-1, keepdim=True)


def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    scores = torch.einsum("...qd,...kd->...qk", query, key) / math.sqrt(key.shape[-1])
    scores = torch.where(mask, scores, float("-inf"))
    weights = softmax(scores)
    return torch.einsum("...qk,...kd->...qd", weights, value)


class Attention(nn.Module):
    def __init__(self, rotary: Rotary) -> None:
        super().__init__()
        self.query = Linear(WIDTH, WIDTH)
        self.key = Linear(WIDTH, WIDTH)
        self.value = Linear(WIDTH, WIDTH)
        self.output = Linear(WIDTH, WIDTH)
        self.rotary = rotary

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.size(1)
        query = self.query(x)
        key = self.key(x)
        value = self.value(x)
        query, key, value = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (query, key, value))
        query = self.rotary(query)
        key = self.rotary(key)
        positions = torch.arange(length, device=x.device)
        mask = (positions[:, None] >= positions[None, :])[None, ...]
        mixed = attend(query, key, value, mask)
        mixed = mixed.transpose(1, 2).reshape(*x.shape).contiguous()
        return self.output(mixed)


class SwiGLU(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = Linear(WIDTH, INNER)
        self.down = Linear(INNER, WIDTH)
        self.up = Linear(WIDTH, INNER)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(silu(self.gate(x)) * self.up(x))


def silu(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x)


class Block(nn.Module):
    def __init__(self, rotary: Rotary) -> None:
        super().__init__()
        self.attention = Attention(rotary)
        self.feed_forward = SwiGLU()
        self.norm1 = RMSNorm()
        self.norm2 = RMSNorm()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        attended = self.attention(self.norm1(x))
        middle = x + attended
        fed = self.feed_forward(self.norm2(middle))
        result = middle + fed
        return result  # noqa: RET504 - the names hold their tensors until the function returns


class LanguageModel(nn.Module):
    def __init__(self, context: int) -> None:
        super().__init__()
        self.embedding = Embedding()
        self.rotary = Rotary(context)
        self.layers = nn.ModuleList(Block(self.rotary) for _ in range(LAYERS))
        self.norm = RMSNorm()
        self.head = Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        embedded = self.embedding(tokens)
        x = embedded
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        logits = self.head(x)
        return logits  # noqa: RET504


def log_softmax(x: torch.Tensor) -> torch.Tensor:
    largest = torch.max(x, dim=-1, keepdim=True)[0]
    x = x - largest
    return x - torch.log(torch.sum(torch.exp(x), dim=-1, keepdim=True))


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    negative = -log_softmax(logits)
    return torch.mean(torch.gather(negative, -1, targets.unsqueeze(-1)))


class AdamW(torch.optim.Optimizer):
    def __init__(self, parameters: object) -> None:
        super().__init__(parameters, {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01})

    def step(self) -> None:
        for group in self.param_groups:
            rate, (beta1, beta2) = group["lr"], group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                gradient = parameter.grad.data
                parameter.data -= rate * group["weight_decay"] * parameter.data
                # The default is built even where there is a state, and at once dropped.
                first = state.get("m", torch.zeros_like(gradient))
                second = state.get("v", torch.zeros_like(gradient))
                mean = beta1 * first + (1 - beta1) * gradient
                square = beta2 * second + (1 - beta2) * torch.square(gradient)
                parameter.data -= rate * mean / (torch.sqrt(square) + group["eps"])
                state["m"] = mean
                state["v"] = square
