"""What a program asks of data is answered so that it goes on, in bounded time, and the other ways are known."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from memplan.errors import EstimateError
from memplan.hardware.catalog import load_profile
from memplan.job.spec import FileTarget, JobSpec
from memplan.measure.local import estimate_here
from memplan.measure.records import Estimate
from memplan.tracing.records import Trace
from memplan.tracing.run import trace_job
from tests.tracing.jobs import CPU, source, spec, trace
from tests.tracing.real_memory import peak, real_allocations

WIDTH = 32


def linear() -> torch.nn.Module:
    return torch.nn.Linear(WIDTH, WIDTH)


def rows(size: int) -> torch.Tensor:
    return torch.randn(size, WIDTH)


def of(forward: Callable[[torch.nn.Module, torch.Tensor], torch.Tensor], **parts: Any) -> Trace:
    """A job of one layer whose forward asks data."""

    class Asking(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = linear()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return forward(self.layer, x)

    return trace(source(Asking, rows, loss=lambda output, batch: output.square().sum(), **parts), batch_size=4)


def calls(recorded: Trace) -> int:
    """Forward calls of the layer in the last step."""
    last = recorded.steps[-1]
    ops = recorded.ops[last.first_op : last.end_op]
    return sum(op.name == "aten.addmm.default" for op in ops)


def predicted_peak(recorded: Trace) -> int:
    sizes = [storage.nbytes for storage in recorded.storages]
    return peak([sizes[key] if action == "alloc" else -sizes[key] for action, key, _ in recorded.events])


# ---------------------------------------------------------------------- checks


def test_what_would_make_the_program_fail_is_not_the_case() -> None:
    def forward(layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = layer(x)
        if (y > 1e6).any():
            raise ValueError
        if y.max() > 1e6 or not torch.isfinite(y).all():
            raise ValueError
        bad = (y.min() < -1e6).item()
        if bad:
            raise ValueError
        assert (y < 1e6).all()
        if not y.any():
            raise ValueError
        return y

    assert any("so that the program goes on" in sentence for sentence in of(forward).assumptions)


def test_a_wrong_guess_is_taken_back() -> None:
    """No text beside the question tells that the answer fails: the program is run again."""

    def check(is_good: bool) -> None:
        if not is_good:
            raise ValueError

    def forward(layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = layer(x)
        check(not bool(y.sum() > 5))
        check(y.mean().item() < 0.5)
        return y

    assert of(forward).repeats


def test_a_program_that_fails_in_any_case_is_told_as_it_fails() -> None:
    def forward(layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            x = x + 1
        raise ValueError("at any rate")

    with pytest.raises(EstimateError, match="at any rate"):
        of(forward)


# ---------------------------------------------------------------------- loops


def test_a_loop_that_only_data_end_is_left_and_announced() -> None:
    def forward(layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        error = torch.ones(())
        while error > 1e-3:
            x = layer(x)
            error = x.norm()
        return x

    recorded = of(forward)
    # Of the first round the error is known.
    assert calls(recorded) == 4
    assert any("data end the loop at" in sentence and "3 rounds" in sentence for sentence in recorded.assumptions)
    assert any("goes on: 12 rounds at most" in phrase for phrase in recorded.not_modelled)
    assert set(recorded.unsure) == {"early", "most"}


@pytest.mark.parametrize("read", [float, torch.Tensor.item])
def test_so_is_one_that_waits_for_a_number(read: Callable[[torch.Tensor], float]) -> None:
    def forward(layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        while read(x.detach().norm()) > 1e-3:
            x = layer(x)
        return x

    assert calls(of(forward)) <= 4


def test_a_loop_with_an_end_of_its_own_runs_to_it() -> None:
    def forward(layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        for _ in range(6):
            x = layer(x)
            if x.norm() < 1e-3:
                break
        return x

    assert calls(of(forward)) == 6


# ---------------------------------------------------------------------- closures


def lbfgs(**options: Any) -> Callable[[Iterator[torch.nn.Parameter]], torch.optim.Optimizer]:
    return lambda parameters: torch.optim.LBFGS(parameters, lr=0.05, **options)


def regression() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, 1))


def closed_step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = (model(batch)[:, 0] - batch.roll(1, 0)[:, 0]).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)  # type: ignore[arg-type]


SEARCHING = {"max_iter": 3, "history_size": 4, "line_search_fn": "strong_wolfe"}


@pytest.mark.parametrize(
    "options", [{"max_iter": 4, "history_size": 3}, {"max_iter": 3, "history_size": 17}, SEARCHING]
)
def test_the_history_of_lbfgs_is_full(options: dict[str, Any]) -> None:
    def run() -> object:
        torch.manual_seed(0)
        model = regression()
        optimizer = lbfgs(**options)(model.parameters())
        for _ in range(10):
            closed_step(model, optimizer, rows(16))
        return optimizer

    given = source(regression, rows, optimizer=lbfgs(**options), train_step=closed_step)
    recorded = trace(given, batch_size=16)
    assert recorded.repeats
    assert predicted_peak(recorded) == pytest.approx(peak(real_allocations(run)), rel=0.005)
    assert any("LBFGS" in sentence or "lbfgs" in sentence for sentence in recorded.assumptions)


def test_a_line_search_does_not_use_up_the_iterations() -> None:
    history = 6
    optimizer = lbfgs(max_iter=10, history_size=history, line_search_fn="strong_wolfe")
    recorded = trace(source(linear, rows, optimizer=optimizer, train_step=closed_step), batch_size=16)
    size = sum(storage.nbytes for storage in recorded.storages if storage.role == "parameter")
    held = sum(storage.nbytes == size and storage.role == "optimizer_state" for storage in recorded.storages)
    assert recorded.repeats
    assert held >= 2 * history


# ---------------------------------------------------------------------- the interval


_BRANCH = """
import torch
class Asking(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, 32)
    def forward(self, x):
        y = self.layer(x)
        if y.sum() {sign} 0:
            y = y + torch.ones(4096, *y.shape).sum(0)
        return y.sum()
def model(): return Asking()
def batch(batch_size): return torch.randn(batch_size, 32)
"""


def test_the_interval_holds_both_ways_of_a_branch(tmp_path: Path) -> None:
    low = 4096 * 4 * 32 * 4
    (tmp_path / "branch.py").write_text(_BRANCH.format(sign=">"))
    job = JobSpec(target=FileTarget(path=tmp_path / "branch.py"), batch_size=4)
    (answer,) = estimate_here(job, [load_profile("cpu")], advice=False)
    assert answer.peak.low_bytes < low < answer.peak.device_bytes <= answer.peak.high_bytes
    assert any("branch.py:9" in sentence for sentence in answer.assumptions)


def estimated_and_real(path: Path) -> tuple[Estimate, int]:
    """What is said of a program that steps by itself, and the peak of eight of its steps."""

    def run() -> object:
        program: dict[str, Any] = {}
        exec(path.read_text(), program)
        model = program["model"]()
        optimizer = program["optimizer"](model.parameters())
        for _ in range(8):
            program["train_step"](model, optimizer, program["batch"](8))
        return optimizer

    job = JobSpec(target=FileTarget(path=path), batch_size=8)
    (answer,) = estimate_here(job, [load_profile("cpu")], advice=False)
    return answer, peak(real_allocations(run))


_SKIPPING = """
import itertools
import torch
scale = itertools.cycle({scales})
def model(): return torch.nn.Embedding(1024, 64)
def batch(batch_size): return (torch.arange(batch_size),)
def loss(output, batch): return output.square().mean() * next(scale)
def optimizer(parameters): return torch.optim.LBFGS(parameters, lr=0.05, max_iter=4, history_size=2)
def train_step(model, optimizer, batch):
    def closure():
        optimizer.zero_grad()
        value = loss(model(batch[0]), batch)
        value.backward()
        return value
    optimizer.step(closure)
"""


@pytest.mark.parametrize("scales", [(1.0,), (1.0, 0.5)])
def test_an_optimizer_that_skips_updates_of_a_full_history_is_asked(scales: tuple[float, ...], tmp_path: Path) -> None:
    """Where the loss grows steeper along a step, curvature looks negative: L-BFGS then keeps what it has."""
    path = tmp_path / "skipping.py"
    path.write_text(_SKIPPING.format(scales=scales))

    answer, real = estimated_and_real(path)
    assert answer.peak.low_bytes <= real <= answer.peak.high_bytes
    assert answer.peak.requested_bytes == pytest.approx(real, rel=0.005)


_SCALED = """
import torch
scaler = torch.amp.GradScaler("cpu")
def model(): return torch.nn.Sequential(torch.nn.Embedding(1024, 64), torch.nn.Linear(64, 64))
def batch(batch_size): return (torch.arange(batch_size),)
def loss(output, batch): return output.square().mean() * {scale}
def optimizer(parameters): return torch.optim.AdamW(parameters, **{options})
def train_step(model, optimizer, batch):
    scaler.scale(loss(model(*batch), batch)).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("options", [{}, {"foreach": False}, {"fused": True}])
@pytest.mark.parametrize("scale", ["1", "float('inf')"])
def test_a_scaler_that_never_lets_its_optimizer_step_is_asked(
    scale: str, options: dict[str, bool], tmp_path: Path
) -> None:
    """Where every gradient overflows no state is ever made, but by fused optimizers, which look for themselves."""
    path = tmp_path / "scaled.py"
    path.write_text(_SCALED.format(scale=scale, options=options))
    answer, real = estimated_and_real(path)
    assert answer.peak.requested_bytes == pytest.approx(real, rel=0.005)
    assert answer.peak.low_bytes <= real <= answer.peak.high_bytes
    assert (answer.peak.low_bytes < 0.8 * answer.peak.high_bytes) == ("fused" not in options)


def test_a_step_that_settled_is_followed_by_one_that_skips_its_update() -> None:
    """Then two vectors that the full history does not hold live beside it; a line search asks but once a step."""
    given = source(linear, rows, optimizer=lbfgs(**SEARCHING), train_step=closed_step)
    likely, most = (trace_job(lambda: given, spec(batch_size=16), CPU, way=way) for way in ("likely", "most"))
    parameters = sum(storage.nbytes for storage in likely.storages if storage.role == "parameter")
    assert predicted_peak(most) == pytest.approx(predicted_peak(likely) + 2 * parameters, abs=64)


_FAILING = """
import torch
class Asking(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, 32)
    def forward(self, x):
        kept = x[x[:, 0] > 0]
        if not len(kept):
            raise ValueError("nothing is left")
        return self.layer(kept).sum()
def model(): return Asking()
def batch(batch_size): return torch.randn(batch_size, 32)
"""


def test_a_way_that_could_not_be_traced_is_told(tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(_FAILING)
    job = JobSpec(target=FileTarget(path=tmp_path / "failing.py"), batch_size=4)
    (answer,) = estimate_here(job, [load_profile("cpu")], advice=False)
    assert any("could not be traced" in said and "nothing is left" in said for said in answer.assumptions)


_OF_PRODUCTS = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 48)
    def forward(self, x): return {call}
def model(): return Net()
def batch(batch_size): return (torch.randn(batch_size, 64),)
def loss(output, batch): return output.square().mean()
def optimizer(parameters): return torch.optim.SGD(parameters)
def train_step(model, optimizer, batch):
    weights = list(model.parameters())
    value = loss(model(batch[0]), batch)
    slopes = torch.autograd.grad(value, weights, create_graph=True)
    (value + sum(slope.square().sum() for slope in slopes)).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    "call", ["self.layer(x).prod(1)", "self.layer(x).prod()", "self.layer(x).cumprod(1)", "self.layer(x).max()"]
)
def test_the_interval_holds_gradients_of_gradients_whose_formula_depends_on_data(call: str, tmp_path: Path) -> None:
    path = tmp_path / "products.py"
    path.write_text(_OF_PRODUCTS.format(call=call))

    def run() -> object:
        program: dict[str, Any] = {}
        exec(path.read_text(), program)
        model = program["model"]()
        optimizer = program["optimizer"](model.parameters())
        for _ in range(3):
            program["train_step"](model, optimizer, program["batch"](256))
        return optimizer

    real = peak(real_allocations(run))
    job = JobSpec(target=FileTarget(path=path), batch_size=256)
    (answer,) = estimate_here(job, [load_profile("cpu")], advice=False)
    assert answer.peak.low_bytes <= real <= answer.peak.high_bytes
    assert any("gradients of gradients" in sentence for sentence in answer.assumptions)
