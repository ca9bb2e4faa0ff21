"""Every example is a target that works, with the sizes that its architecture says."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch

from memplan.hardware.catalog import load_profile
from memplan.job.defaults import caller, default_loss
from memplan.job.loss_items import loss_items
from memplan.job.spec import FileTarget, HubTarget, JobSpec, Target
from memplan.measure.local import estimate_here
from memplan.measure.records import Estimate
from memplan.tracing.cuda.release import VARIABLE

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
FLOAT, MOMENTS = 4, 2
"""Bytes of a float32; AdamW's states of a parameter's size."""


def transformer_parameters(width: int) -> int:
    """Attention (3w² + w²) and a fourfold MLP (4w² + 4w²), their biases (3w + w + 4w + w), two norms (4w)."""
    return 12 * width**2 + 13 * width


def lstm_parameters(width: int) -> int:
    """Four gates, each of two weights and two biases."""
    return 4 * (2 * width**2 + 2 * width)


def llama_parameters(*, width: int, inner: int, layers: int, keys: int, vocabulary: int) -> int:
    """Query and out, key and value, gate, up and down, two norms; embedding and head apart; a last norm."""
    block = 2 * width**2 + 2 * width * keys + 3 * width * inner + 2 * width
    return layers * block + 2 * vocabulary * width + width


GPT = (50304 + 1024) * 768 + 12 * transformer_parameters(768) + 2 * 768
ADAPTERS = 12 * 16 * ((768 + 3 * 768) + (768 + 768))
RESNET_50 = 25_557_032
"""As published with torchvision's model."""
BATCH_NORM_CHANNELS = 64 + sum(
    blocks * 6 * width + 4 * width for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3))
)
CLASSIFIER = 32000 * 512 + 6 * transformer_parameters(512) + 512 * 4 + 4
LSTM = 10000 * 650 + 2 * lstm_parameters(650) + 10000 * 650 + 10000


@cache
def answer(name: str) -> Estimate:
    target: Target = FileTarget(path=EXAMPLES / name)
    [estimate] = estimate_here(JobSpec(target=target), [load_profile("h100-80g")])
    return estimate


@pytest.mark.parametrize(
    ("name", "parameters", "trainable", "states"),
    [
        ("gpt_pretraining.py", GPT, GPT, MOMENTS),
        ("resnet_classification.py", RESNET_50, RESNET_50, 1),
        ("lora_finetuning.py", GPT + ADAPTERS, ADAPTERS, MOMENTS),
        ("gradient_accumulation.py", CLASSIFIER, CLASSIFIER, MOMENTS),
        ("lstm_language_model.py", LSTM, LSTM, MOMENTS),
    ],
)
def test_parameters_and_optimizer_state(name: str, parameters: int, trainable: int, states: int) -> None:
    estimate = answer(name)
    assert (estimate.parameters, estimate.trainable_parameters) == (parameters, trainable)
    assert estimate.breakdown["parameter"] == FLOAT * parameters
    assert estimate.breakdown["optimizer_state"] == states * FLOAT * trainable
    assert estimate.repeats
    assert estimate.verdict == "fits"


def test_gpt_peaks_at_the_gradient_of_its_logits() -> None:
    estimate = answer("gpt_pretraining.py")
    logits = 1023 * 50304 * FLOAT
    assert estimate.peak.phase == "backward"
    # Gradient of the loss by its input, and what log-softmax makes of it.
    assert estimate.breakdown["temporary"] == 2 * logits
    assert estimate.breakdown.get("gradient", 0) == 0


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("resnet_classification.py", RESNET_50),
        ("gradient_accumulation.py", CLASSIFIER),
        ("lstm_language_model.py", LSTM),
    ],
)
def test_small_batches_peak_in_the_optimizer_with_every_gradient_alive(name: str, parameters: int) -> None:
    estimate = answer(name)
    assert estimate.peak.phase == "optimizer"
    assert estimate.breakdown["gradient"] == FLOAT * parameters


def test_resnet_keeps_running_statistics() -> None:
    # A mean and a variance by channel, and a 64-bit counter in each of 53 layers.
    assert answer("resnet_classification.py").breakdown["buffer"] == 2 * FLOAT * BATCH_NORM_CHANNELS + 53 * 8


def test_adapters_spare_gradients() -> None:
    assert answer("lora_finetuning.py").breakdown.get("gradient", 0) <= FLOAT * ADAPTERS


def test_huggingface_directory() -> None:
    pytest.importorskip("transformers")
    spec = JobSpec(target=HubTarget(location=str(EXAMPLES / "hf_directory")), precision="bf16", seq_len=128)
    [estimate] = estimate_here(spec, [load_profile("h100-80g")])
    parameters = llama_parameters(width=2048, inner=5632, layers=22, keys=256, vocabulary=32000)
    assert estimate.parameters == parameters
    assert estimate.breakdown["parameter"] == 2 * parameters
    assert estimate.breakdown["optimizer_state"] == MOMENTS * 2 * parameters


def test_first_command_of_the_readme() -> None:
    [command] = re.findall(r"\.venv/bin/(memplan estimate .*)", (ROOT / "README.md").read_text())
    words = shlex.split(command)
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("✓ FITS     h100-80g")


def test_the_readme_shows_what_its_first_command_prints() -> None:
    text = (ROOT / "README.md").read_text()
    [command] = re.findall(r"\.venv/bin/memplan (estimate .*)", text)
    [shown] = re.findall(r"The first command prints\n\n```text\n(.*?)```", text, re.DOTALL)
    environment = {key: value for key, value in os.environ.items() if key not in {"COLUMNS", "FORCE_COLOR"}}
    environment[VARIABLE] = "2.13.0"  # of which the README is
    printed = subprocess.run(
        [sys.executable, "-m", "memplan", *shlex.split(command)], cwd=ROOT, env=environment,
        capture_output=True, text=True, timeout=300, check=False,
    ).stdout  # fmt: skip

    def lasting(report: str) -> list[str]:
        # One line has a time and versions; the interval moves with every run that is measured.
        lines = [re.sub(r"\[.* to .*\]", "[]", line) for line in report.splitlines()]
        return [line for line in lines if " measured runs" not in line and "traced on CPU in" not in line]

    assert len(lasting(shown)) > 20
    assert lasting(shown) == lasting(printed)


@pytest.mark.slow
def test_the_job_for_ci_estimates_and_passes() -> None:
    text = (EXAMPLES / "memory_check.yml").read_text()
    [command] = re.findall(r"- run: (memplan estimate .*)", text)
    words = [word for word in shlex.split(command) if word not in {"-f", "json=memory.json", "text"}]
    assert {"--fail-on", "json=memory.json"} <= set(shlex.split(command))
    done = subprocess.run([sys.executable, "-m", *words, "-q"], cwd=ROOT, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_examples_also_run_for_real(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    found = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    functions = vars(module)
    model = module.model()
    optimizer = functions.get("optimizer", torch.optim.AdamW)(model.parameters())
    batch = module.batch(4)
    if "train_step" in functions:
        assert torch.isfinite(module.train_step(model, optimizer, batch))
        return
    call = caller(loss_items(functions["loss"]) if "loss" in functions else ())
    loss = functions.get("loss", default_loss)(call(model, batch), batch)
    loss.backward()
    optimizer.step()
    assert torch.isfinite(loss)
