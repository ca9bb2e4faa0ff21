"""What stands for a loop and a precision that nobody chose: transformers' own, where it trains the model."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memplan.job import as_loaded as module
from memplan.job.as_loaded import as_loaded, said
from memplan.job.options import OPTIONS
from memplan.job.parallel import parse_parallel
from memplan.job.spec import FileTarget, HubTarget, JobSpec, PresetTarget, Target
from memplan.project.keywords import read_options

UNSAID = dict.fromkeys(OPTIONS, "default")
HALF, OTHER, WHOLE = (PresetTarget(name=name) for name in ("llama-3.1-8b", "llama-2-7b", "gpt2"))


@pytest.fixture(autouse=True)
def _release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "installed", lambda _: "5.24.0")


def job(target: Target, **options: Any) -> JobSpec:
    return JobSpec(target=target, provenance=UNSAID, **options)


@pytest.mark.parametrize(
    ("target", "options", "has_bfloat16", "chosen"),
    [
        (HALF, {}, True, ("trainer", "bf16")),
        (HALF, {}, False, ("trainer", "fp16-mixed")),
        (OTHER, {}, True, ("trainer", "bf16")),
        (WHOLE, {}, True, ("trainer", "bf16-mixed")),
        (WHOLE, {}, False, ("trainer", "fp16-mixed")),
        (HALF, {"parallel": parse_parallel("fsdp=8")}, True, ("plain", "bf16")),
        (WHOLE, {"optimizer_in_backward": True}, True, ("plain", "bf16-mixed")),
        (WHOLE, {"parallel": parse_parallel("fsdp=8")}, False, ("plain", "fp16-mixed")),
        (WHOLE, {"mode": "inference"}, True, ("plain", "fp32")),
        (OTHER, {"mode": "inference"}, True, ("plain", "fp16")),
        (HALF, {"mode": "generate"}, False, ("plain", "bf16")),
        (PresetTarget(name="sd-1.5-unet"), {}, True, ("plain", "fp32")),
        (FileTarget(path=Path("net.py")), {}, True, ("plain", "fp32")),
    ],
)
def test_most_people_train_so(
    target: Target, options: dict[str, Any], has_bfloat16: bool, chosen: tuple[str, str]
) -> None:
    pytest.importorskip("accelerate")
    found = as_loaded(job(target, **options), has_bfloat16=has_bfloat16)
    assert (found.loop, found.precision) == chosen
    assert replace(found, loop="plain", precision="fp32", provenance=UNSAID) == job(target, **options)


def test_what_somebody_chose_stays() -> None:
    given = {**UNSAID, "precision": "--precision", "loop": "--loop"}
    spec = JobSpec(target=HALF, provenance=given)
    assert as_loaded(spec) == spec
    in_code = JobSpec(target=HALF)
    assert as_loaded(in_code) == in_code


def test_releases_that_load_single_precision_do_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "installed", lambda _: "4.57.1")
    assert as_loaded(job(HALF)).precision == "bf16-mixed"
    assert as_loaded(job(HALF, mode="inference")).precision == "fp32"


@pytest.mark.parametrize(
    ("config", "precision"),
    [
        ({"torch_dtype": "bfloat16"}, "bf16"),
        ({"dtype": "float16"}, "bf16"),
        ({"text_config": {"dtype": "bfloat16"}}, "bf16"),
        ({}, "bf16-mixed"),
    ],
)
def test_a_configuration_says_its_type(tmp_path: Path, config: dict[str, Any], precision: str) -> None:
    pytest.importorskip("accelerate")
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert as_loaded(job(HubTarget(location=str(tmp_path)))).precision == precision


def test_a_configuration_that_is_not_there_decides_nothing() -> None:
    assert as_loaded(job(HubTarget(location="org/name"))).precision == "fp32"


def test_it_is_said() -> None:
    pytest.importorskip("accelerate")
    (own,) = said(as_loaded(job(HALF)))
    assert own.startswith("weights are bfloat16, as transformers 5.24.0 loads them; trained under bf16=True of Trainer")
    (other,) = said(as_loaded(job(OTHER), by_trainer=False))
    assert other.startswith("transformers 5.24.0 loads the weights in float16; here they are those of --precision bf16")
    assert said(job(HALF)) == ()


def test_python_s_searches_take_the_plain_loop() -> None:
    pytest.importorskip("accelerate")
    trained = read_options("preset:gpt2", "t4", {}, Path("call")).spec
    searched = read_options("preset:gpt2", "t4", {}, Path("call"), by_trainer=False).spec
    assert (trained.loop, searched.loop) == ("trainer", "plain")
    assert trained.precision == searched.precision == "fp16-mixed"
