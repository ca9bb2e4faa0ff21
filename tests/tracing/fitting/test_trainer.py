"""``--loop trainer``: models of transformers in its own Trainer, beside real runs of it and beside the plain loop."""

import gc
import json
from pathlib import Path

import pytest

from memplan.errors import UsageError
from memplan.hardware.catalog import load_profile
from memplan.job.adapters import Lora
from memplan.job.parallel import parse_parallel
from memplan.job.spec import FileTarget, HubTarget, JobSpec
from memplan.measure.local import estimate_here
from memplan.measure.records import Estimate
from memplan.validate.run import run_here

pytest.importorskip("accelerate")
pytestmark = pytest.mark.filterwarnings("ignore")

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 128, "intermediate_size": 344,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000,
    "max_position_embeddings": 256,
}  # fmt: skip
BERT = {
    "model_type": "bert", "architectures": ["BertForSequenceClassification"], "hidden_size": 128, "vocab_size": 1000,
    "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 128,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def job(config: dict[str, object] = LLAMA, **options: object) -> JobSpec:
    Path("config.json").write_text(json.dumps(config))
    given = {"batch_size": 4, "seq_len": 64, "loop": "trainer"} | options
    return JobSpec(target=HubTarget(location="config.json"), **given)  # type: ignore[arg-type]


def estimated(spec: JobSpec, gpu: str) -> Estimate:
    [result] = estimate_here(spec, [load_profile(gpu)], advice=False)
    return result


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "options"),
    [
        (LLAMA, {}),
        (LLAMA, {"precision": "bf16-mixed"}),
        (LLAMA, {"precision": "bf16"}),
        (LLAMA, {"grad_accum": 3}),
        (LLAMA, {"clip_grad_norm": 0.5, "optimizer": "sgd"}),
        (LLAMA, {"optimizer": "adafactor"}),
        (LLAMA, {"checkpoint": "full"}),
        (LLAMA, {"lora": Lora(rank=8)}),
        (LLAMA, {"lora": Lora(rank=8), "precision": "bf16"}),
        (BERT, {}),
        (BERT, {"precision": "bf16-mixed"}),
    ],
    ids=lambda value: value["model_type"] if "model_type" in value else "-".join(value) or "plain",
)
def test_a_real_trainer_takes_what_is_predicted(config: dict[str, object], options: dict[str, object]) -> None:
    spec = job(config, **options)
    predicted = estimated(spec, "cpu").peak.requested_bytes
    # What another run has left would be freed in this one, and count as less.
    gc.collect()
    measured = run_here(spec, device="cpu", steps=3, traced_steps=3, seconds=60).measured.peaks.requested
    assert measured == pytest.approx(predicted, abs=256)


def test_no_output_outlives_its_loss() -> None:
    """Logits of a plain loop live through backward; Trainer returns the loss alone."""
    plain, trainer = (estimated(job(loop=loop, batch_size=16), "h100-80g") for loop in ("plain", "trainer"))
    logits = 16 * 64 * 1000 * 4
    assert plain.peak.requested_bytes - trainer.peak.requested_bytes == pytest.approx(logits, rel=0.01)
    assert trainer.options["loop"] == "trainer"
    assert "loop" not in plain.options
    assert any("transformers.Trainer" in sentence for sentence in trainer.assumptions)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"precision": "fp16"}, "fp16-mixed"),
        ({"parallel": parse_parallel("ddp=2")}, "--parallel"),
        ({"optimizer": "sgd-momentum"}, "--optimizer sgd-momentum"),
        ({"optimizer_in_backward": True}, "--optimizer-in-backward"),
        ({"mode": "inference"}, "--mode"),
    ],
)
def test_what_trainer_does_not_do_is_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        estimated(job(**options), "t4")


def test_other_targets_have_no_trainer() -> None:
    Path("net.py").write_text("from torch import nn\n\ndef model():\n    return nn.Linear(8, 8)\n")
    with pytest.raises(UsageError, match="hf: and preset: targets"):
        estimated(JobSpec(target=FileTarget(path=Path("net.py")), loop="trainer"), "t4")


def test_a_package_that_trainer_lacks_is_told_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Advice asks for it, too: what raised anything else took the verdict with it."""
    made = pytest.importorskip("transformers.trainer_optimizer")
    monkeypatch.setattr(made, "is_bitsandbytes_available", lambda *_: False)
    with pytest.raises(UsageError, match=r"Trainer lacks a package.*bitsandbytes") as caught:
        estimated(job(optimizer="paged-adamw-8bit"), "rtx-4090")
    assert caught.value.where == "--optimizer paged-adamw-8bit"
    assert caught.value.hint == "pip install 'memplan[adapters]'"
