"""Chains of blocks, their plans, and one training step of them, for tests."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import memplan
from memplan.runtime.checkpoint.records import Action, BlockPlan, CheckpointPlan, SavedOp, Segment

WIDTH, ROWS = 16, 24
FIRST_LINEAR = (SavedOp(op="aten.addmm.default", calls=(0,)),)


class Block(nn.Module):
    """Everything that makes a second run differ: dropout, running statistics, a keyword argument."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(WIDTH, 4 * WIDTH)
        self.norm = nn.BatchNorm1d(4 * WIDTH)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        return x + scale * self.dropout(self.narrow(torch.sin(self.norm(self.wide(x)))))


class Chain(nn.Module):
    """Calls its blocks in a loop that knows nothing of plans."""

    def __init__(self, depth: int = 4, block: Callable[[], nn.Module] = Block) -> None:
        super().__init__()
        self.embed = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.ModuleList(block() for _ in range(depth))
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x, scale=0.5)
        return self.head(x)


class Plain(nn.Module):
    """A block that saves a known number of bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        return scale * self.narrow(torch.sin(self.wide(torch.cos(x))))


def seeded(build: Callable[[], nn.Module]) -> nn.Module:
    """A model with weights that depend on nothing else."""
    torch.manual_seed(1)
    return build()


def pair(build: Callable[[], nn.Module], plan: CheckpointPlan) -> tuple[nn.Module, nn.Module]:
    """The same model without and with a plan."""
    planned = seeded(build)
    memplan.apply(planned, plan)
    return seeded(build), planned


def rows() -> torch.Tensor:
    """A batch for a chain."""
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(2))


def step(model: nn.Module, *inputs: Any, **keywords: Any) -> dict[str, torch.Tensor]:
    """Loss, gradients and buffers of one training step, by name."""
    torch.manual_seed(3)
    loss = total(model(*(inputs or (rows(),)), **keywords))
    loss.backward()
    found = {"loss": loss.detach()}
    found |= {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    return found | {f"buffer {name}": buffer.clone() for name, buffer in model.named_buffers()}


def total(output: Any) -> torch.Tensor:
    """A loss that depends on every element."""
    found: torch.Tensor = output.float().pow(2).mean()
    return found


def assert_equal(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Bit for bit."""
    assert found.keys() == expected.keys()
    different = [name for name in expected if not torch.equal(found[name], expected[name])]
    assert not different


def blocks(action: Action, *indices: int, saved: tuple[SavedOp, ...] = ()) -> tuple[BlockPlan, ...]:
    """Parts of a plan for layers of a chain."""
    kept = saved or (FIRST_LINEAR if action is Action.SELECTIVE else ())
    return tuple(BlockPlan(module=f"layers.{index}", action=action, saved=kept) for index in indices)


def segment(*indices: int) -> Segment:
    """A segment of layers of a chain."""
    return Segment(modules=tuple(f"layers.{index}" for index in indices))


EVERY = range(4)
PLANS = {
    "checkpoint": CheckpointPlan(blocks=blocks(Action.CHECKPOINT, *EVERY)),
    "selective": CheckpointPlan(blocks=blocks(Action.SELECTIVE, *EVERY)),
    "offload": CheckpointPlan(blocks=blocks(Action.OFFLOAD, *EVERY)),
    "prefetch": CheckpointPlan(blocks=blocks(Action.OFFLOAD, *EVERY), prefetch=True),
    "segment": CheckpointPlan(blocks=(), segments=(segment(*EVERY),)),
    "nested": CheckpointPlan(
        blocks=(*blocks(Action.SELECTIVE, 0, 2), *blocks(Action.CHECKPOINT, 3)),
        segments=(segment(0, 1, 2, 3), segment(0, 1), segment(2, 3)),
    ),
    "mixed": CheckpointPlan(
        blocks=(*blocks(Action.CHECKPOINT, 1), *blocks(Action.OFFLOAD, 0), *blocks(Action.SELECTIVE, 3)),
        segments=(segment(1, 2),),
    ),
}
"""Plans for a chain of four blocks."""
