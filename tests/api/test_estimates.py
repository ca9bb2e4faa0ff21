"""``memplan.estimate`` of live objects: what a target file with the same parts would get; nothing of them changes."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import memplan
from memplan.api import estimates
from memplan.errors import EstimateError, UsageError
from memplan.hardware.catalog import load_profile
from memplan.job.spec import FileTarget, JobSpec
from memplan.measure.local import estimate_here

FILE = """
import torch
from torch import nn
class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(1000, 64)
        self.inner = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
        self.head = nn.Linear(64, 1000, bias=False)
        self.head.weight = self.words.weight
        self.register_buffer("scale", torch.ones(64))
        self.kept = [torch.zeros(8)]
        self.inner[0].weight.requires_grad_(False)
    def forward(self, ids):
        return self.head(self.inner(self.words(ids)) * self.scale)
def model():
    return Tied()
def batch(batch_size):
    return torch.randint(0, 1000, (batch_size, 16)), torch.randint(0, 1000, (batch_size, 16))
def loss(output, batch):
    return nn.functional.cross_entropy(output.flatten(0, 1), batch[1].flatten())
def optimizer(parameters):
    first, *others = parameters
    return torch.optim.SGD([{"params": [first], "momentum": 0.9}, {"params": others}], lr=0.1)
"""


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(FILE)
    names: dict[str, Any] = {}
    exec(compile(FILE, str(tmp_path / "net.py"), "exec"), names)
    return names


def of_file(**options: Any) -> Any:
    [answer] = estimate_here(JobSpec(target=FileTarget(path=Path("net.py")), **options), [load_profile("t4")])
    return answer


def test_live_objects_get_the_estimate_of_a_target_file(parts: dict[str, Any]) -> None:
    model = parts["model"]()
    optimizer = parts["optimizer"](model.parameters())
    before = {name: (value.data_ptr(), value.clone()) for name, value in model.state_dict().items()}
    answer = memplan.estimate(model, parts["batch"](32), loss=parts["loss"], optimizer=optimizer, gpu="t4")
    expected = of_file(batch_size=32)
    assert (answer.peak.device_bytes, answer.breakdown) == (expected.peak.device_bytes, expected.breakdown)
    assert answer.parameters == sum(each.numel() for each in model.parameters())
    assert answer.options["batch_size"] == "32"
    for name, value in model.state_dict().items():
        assert (value.data_ptr(), torch.equal(value, before[name][1])) == (before[name][0], True)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not optimizer.state
    assert model(parts["batch"](2)[0]).isfinite().all()


def test_functions_that_make_objects_do_as_well(parts: dict[str, Any]) -> None:
    made = {"loss": parts["loss"], "optimizer": parts["optimizer"]}
    answer = memplan.estimate(parts["model"], parts["batch"], gpu="t4", batch_size=8, checkpoint="none", **made)
    assert answer.breakdown == of_file(batch_size=8).breakdown


def test_a_batch_of_keywords_and_an_own_step() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(32, 8)

        def forward(self, *, x: torch.Tensor, scale: float) -> torch.Tensor:
            return self.linear(x) * scale

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: dict[str, Any]) -> None:
        model(**batch).sum().backward()
        optimizer.step()

    answer = memplan.estimate(Net(), {"x": torch.zeros(4, 32), "scale": 2.0}, step=step, optimizer="sgd", gpu="cpu")
    assert answer.breakdown["input"] == 4 * 32 * 4
    assert answer.breakdown["gradient"] == (32 * 8 + 8) * 4


@pytest.mark.parametrize("loss", [nn.MSELoss(), nn.functional.mse_loss, "mse"])
def test_losses_of_torch_take_the_last_item_of_the_batch(loss: Any) -> None:
    batch = (torch.zeros(64, 16), torch.zeros(64, 16))
    answer = memplan.estimate(nn.Linear(16, 16), batch, loss=loss, gpu="cpu")
    assert answer.breakdown["activation"] >= 64 * 16 * 4


def test_it_shows_itself_as_text_and_as_a_page() -> None:
    answer = memplan.estimate(nn.Linear(16, 16), torch.zeros(4, 16), loss="sum", gpu="t4")
    assert str(answer).startswith("✓ FITS     t4  peak ")
    assert "Linear" in str(answer)
    assert "memplan_live" not in str(answer) + repr(answer.provenance)
    page = answer._repr_html_()
    assert page.startswith("<iframe srcdoc=")
    assert "<script" not in page  # It stands in an attribute, escaped.


def test_a_target_by_its_name_runs_as_on_the_command_line(parts: dict[str, Any]) -> None:
    answer = memplan.estimate("net.py", gpu="t4", batch_size=8)
    assert answer.breakdown == of_file(batch_size=8).breakdown


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda: memplan.estimate(nn.Linear(2, 2), torch.zeros(1, 2), gpu="h1000"), "unknown GPU"),
        (lambda: memplan.estimate(nn.Linear(2, 2), torch.zeros(1, 2), batch_size=3), "the batch that is given"),
        (lambda: memplan.estimate(nn.Linear(2, 2), torch.zeros(1, 2), precisoin="bf16"), "precisoin"),
        (lambda: memplan.estimate("gpt2", torch.zeros(1, 2)), "of its own"),
        (
            lambda: memplan.estimate(
                lambda: nn.Linear(2, 2), torch.zeros(1, 2), optimizer=torch.optim.SGD(nn.Linear(2, 2).parameters())
            ),
            "needs the model that exists",
        ),
    ],
    ids=["gpu", "batch", "option", "target", "optimizer"],
)
def test_what_cannot_be_is_refused(call: Callable[[], object], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        call()


def test_an_optimizer_of_another_model_is_refused() -> None:
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters())
    with pytest.raises(EstimateError, match="none of the model's"):
        memplan.estimate(nn.Linear(2, 2), torch.zeros(1, 2), loss="sum", optimizer=optimizer)


def test_one_trace_at_a_time() -> None:
    inside, done = threading.Event(), threading.Event()

    def model() -> nn.Module:
        inside.set()
        done.wait(60)
        return nn.Linear(2, 2)

    first = threading.Thread(target=lambda: memplan.estimate(model, torch.zeros(1, 2), loss="sum", gpu="cpu"))
    first.start()
    try:
        assert inside.wait(60)
        with pytest.raises(UsageError, match="another trace"):
            memplan.estimate(nn.Linear(2, 2), torch.zeros(1, 2), loss="sum")
    finally:
        done.set()
        first.join()


def test_what_memplan_offers_is_listed() -> None:
    assert {"estimate", "gpus", "profile", "__version__"} <= set(dir(memplan))
    assert memplan.__version__
    assert "t4" in {profile.name for profile in memplan.gpus()}
    assert memplan.estimate is estimates.estimate
