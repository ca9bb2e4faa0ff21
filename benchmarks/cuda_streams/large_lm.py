# ruff: noqa: D101, D102, D103 - a program as its author would write it; the module docstring says what it is.
"""The program behind the ``kkaitlyn_memory_ctx*`` snapshots (github.com/kkaitlyn111/cs336-a2-systems, torch 2.6, H100).

A decoder of 2.7 billion parameters. The repository holds the loop (cs336_systems/benchmark.py) but not the model, so
the model is reconstructed from the snapshots themselves: it shows that the recorder reproduces the stream, and is no
blind prediction. ``einsum`` is spelled out as torch 2.6 ran it, because later releases choose another operand order.
"""

import torch
from torch import nn

LAYERS, WIDTH, INNER, HEADS, VOCABULARY, BATCH = 32, 2560, 10_240, 32, 10_000, 4
HEAD = WIDTH // HEADS


class Linear(nn.Module):
    """``einsum("o i, ... i -> ... o", weight, x)``: the weight comes first, so results lie feature by feature."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.is_autocast_enabled("cuda"):
            # Its casts come in the order of einsum's operands; in a forward pass alone, theirs does not show.
            return torch.einsum("oi,...i->...o", self.weight, x)
        batch, length, inputs = x.shape
        columns = x.permute(2, 0, 1).reshape(1, inputs, batch * length)
        return torch.bmm(self.weight[None], columns).view(-1, batch, length).permute(1, 2, 0)


class Embedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(VOCABULARY, WIDTH))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.weight[tokens]


class RMSNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        root = torch.sqrt(length**2 / WIDTH + 1e-5)
        normal = x / root
        result = torch.einsum("i,...i->...i", self.weight, normal)
        return result.to(x.dtype)


class Rotary(nn.Module):
    def __init__(self, context: int) -> None:
        super().__init__()
        self.register_buffer("cosine", torch.empty(context, HEAD // 2), persistent=False)
        self.register_buffer("sine", torch.empty(context, HEAD // 2), persistent=False)

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        cosine = self.cosine[positions].unsqueeze(1)
        sine = self.sine[positions].unsqueeze(1)
        pairs = x.unflatten(-1, (-1, 2))
        rotated = torch.zeros_like(pairs)
        rotated[..., 0] = pairs[..., 0] * cosine - pairs[..., 1] * sine
        rotated[..., 1] = pairs[..., 0] * sine + pairs[..., 1] * cosine
        return rotated.flatten(-2)


def softmax(x: torch.Tensor) -> torch.Tensor:
    largest = torch.max(x, dim=-1, keepdim=True)[0]
    powers = torch.exp(x - largest)
    total = torch.sum(powers, dim=-1, keepdim=True)
    return powers / total


def heads_product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """``einsum`` over two (batch, heads, …) operands: both are folded to three dimensions, by a copy if need be."""
    if torch.is_autocast_enabled("cuda"):
        return torch.einsum("...qi,...ik->...qk", left, right)
    batch, heads = left.shape[:2]
    product = torch.bmm(left.reshape(batch * heads, *left.shape[2:]), right.reshape(batch * heads, *right.shape[2:]))
    return product.view(batch, heads, *product.shape[1:])


def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    scores = heads_product(query, key.transpose(2, 3))
    scores = scores / HEAD**0.5
    scores = scores.masked_fill(mask == False, -1e9)  # noqa: E712 - the comparison makes a tensor
    weights = softmax(scores)
    return heads_product(weights, value)


class Attention(nn.Module):
    def __init__(self, context: int) -> None:
        super().__init__()
        self.query = Linear(WIDTH, WIDTH)
        self.key = Linear(WIDTH, WIDTH)
        self.value = Linear(WIDTH, WIDTH)
        self.output = Linear(WIDTH, WIDTH)
        self.rotary = Rotary(context)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        flat_query = self.query(x)
        flat_key = self.key(x)
        flat_value = self.value(x)
        query = flat_query.unflatten(-1, (HEADS, HEAD)).transpose(1, 2)
        key = flat_key.unflatten(-1, (HEADS, HEAD)).transpose(1, 2)
        value = flat_value.unflatten(-1, (HEADS, HEAD)).transpose(1, 2)
        positions = torch.arange(length, device=x.device).unsqueeze(0).expand(batch, -1)
        query = self.rotary(query, positions)
        key = self.rotary(key, positions)
        mask = torch.triu(torch.ones(length, length, device=x.device), diagonal=1).to(torch.bool)
        mask = ~mask
        mask = mask[None, None].expand(batch, HEADS, -1, -1)
        result = attend(query, key, value, mask)
        result = result.transpose(1, 2).reshape(batch, length, WIDTH)
        return self.output(result)


class SwiGLU(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = Linear(WIDTH, INNER)
        self.down = Linear(INNER, WIDTH)
        self.up = Linear(WIDTH, INNER)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = self.gate(x)
        up = self.up(x)
        activated = gate * torch.sigmoid(gate)
        product = activated * up
        return self.down(product)


class Block(nn.Module):
    def __init__(self, context: int) -> None:
        super().__init__()
        self.norm1 = RMSNorm()
        self.attention = Attention(context)
        self.norm2 = RMSNorm()
        self.feed_forward = SwiGLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        branch = self.norm1(x)
        branch = self.attention(branch)
        x = x + branch
        branch = self.norm2(x)
        branch = self.feed_forward(branch)
        x = x + branch
        return x  # noqa: RET504 - the names hold their tensors until the function returns


class LanguageModel(nn.Module):
    def __init__(self, context: int) -> None:
        super().__init__()
        self.embedding = Embedding()
        self.layers = nn.ModuleList(Block(context) for _ in range(LAYERS))
        self.norm = RMSNorm()
        self.head = Linear(WIDTH, VOCABULARY)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embedding(x)
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        x = self.head(x)
        return x  # noqa: RET504


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    logits = logits.reshape(-1, logits.shape[-1])
    targets = targets.reshape(-1)
    largest = torch.max(logits, dim=-1, keepdim=True)[0]
    logits = logits - largest
    powers = torch.exp(logits)
    totals = torch.sum(powers, dim=-1)
    chosen = logits[torch.arange(logits.shape[0]), targets]
    losses = torch.log(totals) - chosen
    return torch.mean(losses)


class AdamW(torch.optim.Optimizer):
    def __init__(self, parameters: object) -> None:
        super().__init__(parameters, {"lr": 1e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.01})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            rate, (beta1, beta2) = group["lr"], group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                gradient = parameter.grad
                state = self.state[parameter]
                if not state:
                    state["m"] = torch.zeros_like(parameter)
                    state["v"] = torch.zeros_like(parameter)
                mean, square = state["m"], state["v"]
                mean.mul_(beta1).add_(gradient, alpha=1 - beta1)
                square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
                root = (square.sqrt() / (1 - beta2) ** 0.5).add_(group["eps"])
                parameter.addcdiv_(mean, root, value=-rate)
                parameter.mul_(1 - rate * group["weight_decay"])
