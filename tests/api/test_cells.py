"""``with memplan.on(…)``: the block is traced, what stood there before stays what it was."""

from typing import Any

import pytest
import torch

import memplan
from memplan.errors import EstimateError, UsageError

BEFORE = """
import torch
from torch import nn
import memplan
model = nn.Sequential(nn.Linear(64, 4096), nn.GELU(), nn.Linear(4096, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
x, y = torch.randn(32, 64), torch.randint(0, 10, (32,))
loss = "as it was"
"""
LOOP = """
with memplan.on("t4") as cell:
    for step in range(10 ** 9):
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        output = loss.detach()
"""


def run(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(BEFORE, "before.py", "exec"), names)
    names["weight"] = names["model"][0].weight.detach().clone().numpy()
    exec(compile(code, "cell.py", "exec"), names)
    return names


def test_a_loop_in_a_block_has_the_peak_of_its_step() -> None:
    names = run(LOOP)
    same = memplan.estimate(
        names["model"],
        (names["x"], names["y"]),
        loss=torch.nn.CrossEntropyLoss(),
        optimizer=names["optimizer"],
        gpu="t4",
    )
    answer = names["cell"].estimate
    assert answer.verdict == "fits"
    assert answer.peak.device_bytes == same.peak.device_bytes
    for category in ("parameter", "gradient", "optimizer_state"):
        assert answer.breakdown[category] == same.breakdown[category]


def test_nothing_of_the_block_stays() -> None:
    names = run(LOOP)
    assert names["loss"] == "as it was"
    assert not {"output", "step"} & names.keys()
    model = names["model"]
    assert torch.equal(model[0].weight, torch.from_numpy(names["weight"]))
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not names["optimizer"].state


def test_a_block_that_fails_is_undone_too() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(BEFORE, "before.py", "exec"), names)
    model = names["model"]
    with pytest.raises(ZeroDivisionError):
        exec('with memplan.on("t4") as cell:\n    model = 1 / 0', names)
    assert names["model"] is model
    assert not isinstance(torch.ones(1), type(names["cell"]))
    with pytest.raises(UsageError, match="has not ended, or it failed"):
        _ = names["cell"].estimate


def test_what_cannot_be_traced_is_told() -> None:
    with pytest.raises(EstimateError, match="ended without a training step"):
        run('with memplan.on("t4") as cell:\n    output = model(x)')
    with pytest.raises(UsageError, match="stands in a function"), memplan.on("t4"):
        pass
