"""Choices of routers that are forced."""

from collections.abc import Sequence

import torch


def indices_of(loads: Sequence[int], top: int) -> torch.Tensor:
    """Different experts for each token, so that every expert has its load: (tokens, top)."""
    left, rows = list(loads), []
    for _ in range(sum(loads) // top):
        chosen = sorted(range(len(left)), key=lambda expert: -left[expert])[:top]
        for expert in chosen:
            left[expert] -= 1
        rows.append(chosen)
    assert not any(left), "no tokens have these loads"
    return torch.tensor(rows)
