"""Fine-tuning with low-rank adapters: the GPT of ``gpt_pretraining.py`` is frozen, only the adapters are trained.

Try it with

    memplan estimate examples/lora_finetuning.py --gpu t4
"""

from collections.abc import Iterable

import gpt_pretraining
import torch
from torch import nn

RANK = 16

batch, loss = gpt_pretraining.batch, gpt_pretraining.loss


class Adapted(nn.Module):
    """A frozen linear layer and a trainable detour of low rank."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, RANK, bias=False)
        self.up = nn.Linear(RANK, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x))


def model() -> nn.Module:
    network = gpt_pretraining.GPT().requires_grad_(False)
    for block in network.blocks:
        block.attention.qkv = Adapted(block.attention.qkv)
        block.attention.out = Adapted(block.attention.out)
    return network


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW([parameter for parameter in parameters if parameter.requires_grad], lr=2e-4)
