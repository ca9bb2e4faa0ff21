"""Which optimizations a job has, which it could have, and what each saves: peaks of jobs typed that way."""

import dataclasses
from pathlib import Path

import pytest

from memplan.hardware.catalog import load_profile
from memplan.job.parallel import parse_parallel
from memplan.job.spec import JobSpec
from memplan.job.target import parse_target
from memplan.measure.local import NOT_ALL_SWITCHED, estimate_here
from memplan.measure.savings import Switch
from memplan.plan.switches import switches
from tests.support.targets import NET

JOB = JobSpec(target=parse_target("preset:gpt2"))


def named(spec: JobSpec) -> dict[str, Switch]:
    return {switch.text: switch for switch in switches(spec)}


def test_what_is_on_can_be_turned_off() -> None:
    given = dataclasses.replace(
        JOB, checkpoint="full", precision="bf16-mixed", optimizer="adamw-8bit", loss_chunks=8, offload_activations=True,
        optimizer_in_backward=True,
    )  # fmt: skip
    on = [switch for switch in switches(given) if switch.is_on and not switch.is_usual]
    assert {switch.text for switch in on} == {
        "--checkpoint full", "--precision bf16-mixed", "--optimizer adamw-8bit", "--loss-chunks 8",
        "--offload-activations", "--optimizer-in-backward",
    }  # fmt: skip
    names = [field.name for field in dataclasses.fields(JobSpec)]
    assert all(sum(getattr(each.spec, name) != getattr(given, name) for name in names) == 1 for each in on)
    assert not {"--checkpoint none", "--loss-chunks 8"} & {each.text for each in switches(given) if not each.is_on}


def test_a_plain_job_could_have_all_of_them() -> None:
    off = {text for text, switch in named(JOB).items() if not switch.is_on}
    assert {
        "--checkpoint full", "--precision bf16-mixed", "--optimizer adamw-8bit", "--optimizer-impl fused",
        "--loss-chunks 8", "--optimizer-in-backward", "--offload-activations",
    } <= off  # fmt: skip
    assert any("--lora" in text for text in off)
    assert any("--quantize" in text for text in off)


def test_shards_stand_against_copies_on_as_many_ranks() -> None:
    sharded = named(dataclasses.replace(JOB, parallel=parse_parallel("fsdp=8")))["--parallel fsdp=8"]
    assert sharded.is_on
    assert sharded.spec.parallel == parse_parallel("ddp=8")
    copies = named(dataclasses.replace(JOB, parallel=parse_parallel("ddp=8")))["--parallel fsdp=8"]
    assert not copies.is_on
    assert copies.spec.parallel == parse_parallel("fsdp=8")


@pytest.fixture
def job(tmp_path: Path) -> JobSpec:
    (tmp_path / "net.py").write_text(NET)
    return JobSpec(target=parse_target(str(tmp_path / "net.py")), batch_size=65536, checkpoint="full")


@pytest.mark.slow
def test_savings_are_differences_of_traced_peaks(job: JobSpec) -> None:
    profiles = [load_profile("h100-80g")]
    (answer,) = estimate_here(job, profiles, switches=switches(job))
    saved = {each.optimization: each for each in answer.savings}
    for text, changed in (
        ("--checkpoint full", dataclasses.replace(job, checkpoint="none")),
        ("--precision bf16-mixed", dataclasses.replace(job, precision="bf16-mixed")),
    ):
        (other,) = estimate_here(changed, profiles)
        difference = other.peak.device_bytes - answer.peak.device_bytes
        assert saved[text].device_bytes == other.peak.device_bytes
        assert saved[text].saved_bytes == (difference if saved[text].on else -difference)
    assert (saved["--checkpoint full"].saved_bytes or 0) > 0
    # No logits, no attention: what cannot be on, or changes nothing that nobody asked for, is not told.
    assert not {text for text in saved if "loss-chunks" in text or "attention" in text or "fp16" in text.split("-")}
    (older,) = estimate_here(job, [load_profile("t4")], switches=switches(job))
    assert {each.optimization for each in older.savings} & {"--precision fp16-mixed", "--precision bf16-mixed"} == {
        "--precision fp16-mixed"
    }


def test_no_more_is_traced_than_advice_may(job: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memplan.measure.local.MOST_OPS_OF_ADVICE", 0)
    (answer,) = estimate_here(job, [load_profile("h100-80g")], switches=switches(job))
    assert NOT_ALL_SWITCHED in answer.assumptions
    assert [(each.on, each.device_bytes, each.reason) for each in answer.savings] == [(True, None, NOT_ALL_SWITCHED)]
