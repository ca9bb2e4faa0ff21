"""What attention holds, against sizes worked out by hand; models in which a softmax is something else."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from memplan.lifetime.attention import attention_ops, held_by_attention
from memplan.lifetime.build import build_lifetimes
from memplan.lifetime.records import Category, Lifetimes
from tests.tracing.jobs import source, trace

BATCH, TOKENS, WIDE, HEADS, FLOAT = 2, 64, 32, 4, 4
NUMBERS = BATCH * TOKENS * WIDE


class Attention(nn.Module):
    def __init__(self, *, fused: bool) -> None:
        super().__init__()
        self.qkv, self.out, self.fused = nn.Linear(WIDE, 3 * WIDE, bias=False), nn.Linear(WIDE, WIDE, bias=False), fused

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.qkv(x).unflatten(-1, (3, HEADS, WIDE // HEADS)).transpose(1, 3).unbind(2)
        if self.fused:
            mixed = functional.scaled_dot_product_attention(query, key, value)
        else:
            scores = query @ key.transpose(-1, -2)
            mixed = scores.softmax(-1) @ value
        return self.out(mixed.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """Attention, or what only looks like it, and a network beside it."""

    def __init__(self, mixer: nn.Module) -> None:
        super().__init__()
        self.mixer, self.up, self.down = mixer, nn.Linear(WIDE, 4 * WIDE), nn.Linear(4 * WIDE, WIDE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.mixer(x)
        return x + self.down(self.up(x).tanh())


class Router(nn.Module):
    """A softmax over experts: no attention."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.values = nn.Linear(WIDE, 8), nn.Linear(8, WIDE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.values(self.gate(x).softmax(-1))


def lifetimes_of(mixer: nn.Module) -> Lifetimes:
    given = source(
        lambda: Layer(mixer),
        lambda size: torch.randn(size, TOKENS, WIDE),
        loss=lambda output, _: output.sum(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=False),
    )
    return build_lifetimes(trace(given, batch_size=BATCH))


def held_before_backward(lifetimes: Lifetimes) -> dict[Category, int]:
    ops = lifetimes.trace.ops
    begins = next(op.index for op in ops[lifetimes.trace.steps[-1].first_op :] if op.phase == "backward")
    alive = [key for key, buffer in lifetimes.buffers.items() if buffer.start < begins < buffer.end]
    return held_by_attention(lifetimes, alive)


@pytest.mark.parametrize("fused", [True, False])
def test_its_weights_and_their_states_are_those_of_its_projections(fused: bool) -> None:
    held = held_before_backward(lifetimes_of(Attention(fused=fused)))
    assert held[Category.PARAMETER] == held[Category.OPTIMIZER_STATE] == 4 * WIDE * WIDE * FLOAT


def test_scores_by_hand_are_its_activations() -> None:
    held = held_before_backward(lifetimes_of(Attention(fused=False)))
    scores = BATCH * HEADS * TOKENS * TOKENS
    # The softmax's result; copies of queries, keys and values for the products, and the mixed values in order.
    assert scores + 4 * NUMBERS <= held[Category.ACTIVATION] / FLOAT <= scores + 7 * NUMBERS


def test_the_network_beside_it_is_not_counted() -> None:
    lifetimes = lifetimes_of(Attention(fused=True))
    modules = {lifetimes.trace.ops[index].module for index in attention_ops(lifetimes.trace)}
    assert modules == {"mixer", "mixer.qkv", "mixer.out"}


def test_a_router_is_no_attention() -> None:
    assert held_before_backward(lifetimes_of(Router())) == {}
