"""Q-learning with a target network that follows slowly."""

import copy
from collections.abc import Iterable

import torch
from torch import nn

Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def model() -> nn.Module:
    online = nn.Sequential(nn.Linear(64, 512), nn.ELU(), nn.Linear(512, 512), nn.ELU(), nn.Linear(512, 18))
    networks = nn.ModuleDict({"online": online, "target": copy.deepcopy(online)})
    networks["target"].requires_grad_(requires_grad=False)
    return networks


def batch(batch_size: int, seq_len: int | None = None) -> Batch:
    states, followers = torch.randn(batch_size, 64), torch.randn(batch_size, 64)
    return states, torch.randint(0, 18, (batch_size, 1)), torch.randn(batch_size), followers


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam([each for each in parameters if each.requires_grad], amsgrad=True)


def train_step(model: nn.ModuleDict, optimizer: torch.optim.Optimizer, batch: Batch) -> float:
    states, actions, rewards, followers = batch
    with torch.no_grad():
        goal = rewards + 0.99 * model["target"](followers).max(1).values
    loss = nn.functional.smooth_l1_loss(model["online"](states).gather(1, actions).squeeze(1), goal)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(model["online"].parameters(), 1.0)
    optimizer.step()
    with torch.no_grad():
        for fast, slow in zip(model["online"].parameters(), model["target"].parameters(), strict=True):
            slow.lerp_(fast, 0.01)
    return loss.item()
