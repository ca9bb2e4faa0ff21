"""Callbacks that check before the first step, in the real loops of Lightning and transformers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import memplan
from memplan.api import estimates
from memplan.api.checks import PredictedOutOfMemoryError, card_at_hand
from memplan.hardware.catalog import load_profile

SMALL = "t4"
"""A card that everything here fits on."""


pytestmark = [
    pytest.mark.filterwarnings("ignore:.*(LeafSpec|num_workers|logging interval|pin_memory)"),
]


@pytest.fixture
def tiny_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card on which the small models of these tests do not fit."""
    usable = load_profile(SMALL)
    card = replace(usable, usable_bytes=usable.context_bytes + 1)
    monkeypatch.setattr("memplan.api.jobs.load_profile", lambda _: card)


def lightning_parts() -> tuple[Any, Any]:
    lightning = pytest.importorskip("lightning")

    class Net(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
            self.steps = 0

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            self.steps += 1
            loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters())

    torch.manual_seed(0)
    return Net(), DataLoader(TensorDataset(torch.randn(32, 16), torch.randint(0, 4, (32,))), batch_size=8, shuffle=True)


def fit(*callbacks: Any) -> Any:
    lightning = pytest.importorskip("lightning")
    model, loader = lightning_parts()
    lightning.Trainer(
        accelerator="cpu", max_steps=4, accumulate_grad_batches=2, gradient_clip_val=1.0, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, callbacks=list(callbacks),
    ).fit(model, loader)  # fmt: skip
    return model


@pytest.mark.slow
def test_lightning_trains_on_as_if_nobody_had_looked() -> None:
    check = memplan.lightning_check(gpu=SMALL)
    assert check.estimate is None
    looked_at, plain = fit(check), fit()
    for name, parameter in plain.state_dict().items():
        assert torch.equal(parameter, looked_at.state_dict()[name])
    assert looked_at.steps == plain.steps
    asked = check.estimate.options
    assert (asked["batch_size"], asked["grad_accum"], asked["clip_grad_norm"]) == ("8", "2", "1.0")
    assert any("lightning.Trainer" in said for said in check.estimate.assumptions)


@pytest.mark.usefixtures("tiny_card")
def test_lightning_does_not_begin_a_step_that_does_not_fit() -> None:
    with pytest.raises(MemoryError, match="memplan predicts, before the first step: ✗ OOM") as raised:
        fit(memplan.lightning_check(gpu=SMALL))
    assert isinstance(raised.value, PredictedOutOfMemoryError)
    with pytest.warns(UserWarning, match="✗ OOM"):
        assert fit(memplan.lightning_check(gpu=SMALL, on_oom="warn")).steps == 8


class Rows(Dataset[dict[str, torch.Tensor]]):
    """Tokens to learn."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = torch.arange(index, index + 12) % 50
        return {"input_ids": row, "labels": row}


def train(folder: Path, *callbacks: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2)
    model = transformers.GPT2LMHeadModel(config)
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=4, gradient_accumulation_steps=2, max_steps=2, seed=1,
        use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True, bf16=True,
    )  # fmt: skip
    transformers.Trainer(model=model, args=arguments, train_dataset=Rows(), callbacks=list(callbacks)).train()
    return model


@pytest.mark.slow
def test_transformers_trains_on_as_if_nobody_had_looked(tmp_path: Path) -> None:
    check = memplan.transformers_check(gpu=SMALL)
    looked_at, plain = train(tmp_path, check), train(tmp_path)
    for name, parameter in plain.state_dict().items():
        assert torch.equal(parameter, looked_at.state_dict()[name])
    asked = check.estimate.options
    assert (asked["batch_size"], asked["grad_accum"], asked["precision"]) == ("4", "2", "bf16-mixed")
    assert asked["clip_grad_norm"] == "1.0"
    assert not looked_at._forward_pre_hooks


@pytest.mark.usefixtures("tiny_card")
def test_transformers_does_not_begin_a_step_that_does_not_fit(tmp_path: Path) -> None:
    with pytest.raises(PredictedOutOfMemoryError, match="before the first step: ✗ OOM"):
        train(tmp_path, memplan.transformers_check(gpu=SMALL))


def test_a_step_that_cannot_be_traced_runs_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise memplan.errors.EstimateError("an op has no answer")

    monkeypatch.setattr(estimates, "estimate", fails)
    with pytest.warns(UserWarning, match="could not check this step before it runs: an op has no answer"):
        assert fit(memplan.lightning_check()).steps == 8


def test_the_card_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert card_at_hand() == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla T4")
    assert card_at_hand() == "t4"
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Card of nobody")
    with pytest.raises(memplan.errors.UsageError, match="Card of nobody"):
        card_at_hand()
