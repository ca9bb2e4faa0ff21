"""``--compile aot_eager``: on the CPU a real ``torch.compile`` with that backend is the truth."""

import importlib
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._functorch import config
from torch.nn import functional

from memplan.tracing.records import DeviceTraits, Trace
from tests.tracing.jobs import CPU, source, trace
from tests.tracing.real_memory import peak
from tests.tracing.test_inductor import GPU, SMALL, last_step

WIDTH, LENGTH = 64, 128
BUDGETED = 0.3


class Feedforward(nn.Module):
    """Layers whose activations a partitioner may compute again."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + functional.silu(layer(functional.layer_norm(x, (WIDTH,)))) * functional.gelu(x)
        return x


def sequences(size: int) -> torch.Tensor:
    return torch.randn(size, LENGTH, WIDTH)


def mean_square(output: torch.Tensor, _: object) -> torch.Tensor:
    return output.pow(2).mean()


def traced(device: DeviceTraits, choice: str, size: int = 8) -> Trace:
    return trace(source(Feedforward, sequences, loss=mean_square), device=device, compile=choice, batch_size=size)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("budget", [1.0, BUDGETED])
def test_a_step_takes_what_a_real_one_takes(budget: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    benchmark = importlib.import_module("compile_cpu")
    torch._dynamo.reset()
    with config.patch(activation_memory_budget=budget):
        predicted = last_step(traced(CPU, "aot_eager", benchmark.BATCH))
        real = benchmark.settled(Feedforward(), sequences, mean_square, backend="aot_eager")
    assert peak(predicted) == peak([size for size in real if abs(size) > SMALL])


def test_ops_run_one_by_one_and_a_budget_counts() -> None:
    def taken(budget: float) -> int:
        with config.patch(activation_memory_budget=budget):
            return peak(last_step(traced(GPU, "aot_eager")))

    assert taken(BUDGETED) < taken(1.0)
    # Torch 2.6 takes its backward apart, torch 2.13 does not.
    names = [op.name for op in traced(GPU, "aot_eager").ops]
    assert "aten.silu.default" in names
    assert "aten.silu_backward.default" in names or "aten.sigmoid.default" in names
