"""With ``--emit`` the search takes what can be emitted alone, and says before it begins where nothing can."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from memplan.cli.app import main
from memplan.emit.formats import emit
from memplan.emit.records import FORMATS, SAYABLE
from memplan.errors import UsageError
from memplan.hardware.catalog import load_profile
from memplan.job.parallel import parse_parallel
from memplan.job.setup_file import Prediction, make_setup
from memplan.job.spec import FileTarget, JobSpec, PresetTarget
from memplan.plan.recommend import changes, flow
from memplan.plan.recommend.bases import bases
from memplan.plan.recommend.compose import recommend
from memplan.plan.recommend.records import Search
from memplan.plan.recommend.space import allowed, changes_for, combine, may_be_tried
from memplan.plan.recommend.workers import Workers
from memplan.units import Bytes
from tests.plan.recommend.models import MODEL
from tests.plan.recommend.test_recommend import Here

JOB = JobSpec(target=PresetTarget(name="gpt2"), batch_size=4)


def search_for(*formats: str, gpus: int = 8, **more: object) -> Search:
    return Search(gpus=gpus, emitted=tuple(SAYABLE[name] for name in formats), **more)  # type: ignore[arg-type]


@pytest.fixture(params=[False, True], ids=["no deepspeed", "deepspeed"])
def deepspeed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Is DeepSpeed installed?"""
    monkeypatch.setattr(changes, "find_spec", lambda _: request.param or None)
    return bool(request.param)


def can_be_emitted(spec: JobSpec, formats: Sequence[str]) -> bool:
    """Does memplan emit write it?"""
    nothing = Prediction(device_bytes=Bytes(1), allocated_bytes=Bytes(1), reserved_bytes=Bytes(1))
    try:
        for name in formats:
            emit(make_setup(spec, "h100-80g", nothing), name)
    except UsageError:
        return False
    return True


def ways(spec: JobSpec, search: Search) -> dict[str, JobSpec]:
    """One of the ways with each layout, as the search would list them."""
    found = {}
    for base in bases(spec, search):
        mine = [each for each in changes_for(base.spec, search) if each.group == "parallel" and allowed(each, search)]
        for each in combine(base, mine, replace(search, keep=("split",))):
            if may_be_tried(each.candidate, base, search):
                found[str(each.candidate.spec.parallel)] = each.candidate.spec
    return found


@pytest.mark.usefixtures("deepspeed")
@pytest.mark.parametrize("gpus", [1, 8, 16])
@pytest.mark.parametrize("formats", [*((name,) for name in FORMATS), ("hf", "deepspeed"), ("torch", "fsdp2")])
def test_what_may_be_chosen_is_what_memplan_emit_writes(formats: tuple[str, ...], gpus: int) -> None:
    everything = ways(JOB, Search(gpus=gpus))
    written = {name for name, spec in everything.items() if can_be_emitted(spec, formats)}
    if not written:
        with pytest.raises(UsageError, match="nothing that may be recommended"):
            bases(JOB, search_for(*formats, gpus=gpus))
        return
    assert set(ways(JOB, search_for(*formats, gpus=gpus))) == written


def test_what_lacks_a_package_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "find_spec", lambda _: None)
    with pytest.raises(UsageError) as caught:
        bases(JOB, search_for("deepspeed"))
    assert "DeepSpeed's file" in caught.value.what
    assert caught.value.where == "--emit"
    assert "pip install deepspeed" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("job", "search", "hint"),
    [
        (JOB, search_for("fsdp2", gpus=1), "--gpus"),
        (replace(JOB, parallel=parse_parallel("fsdp=8")), search_for("torch", keep=("parallel",)), "--keep"),
        (JOB, search_for("torch", "fsdp2"), "docs/emit.md"),
        (replace(JOB, mode="inference"), search_for("hf", gpus=1), "only training"),
    ],
)
def test_each_reason_has_its_hint(job: JobSpec, search: Search, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        bases(job, search)
    assert hint in str(caught.value)


def test_what_is_given_may_be_what_no_file_says_where_changes_lead_to_one() -> None:
    job = replace(JOB, parallel=parse_parallel("ddp=8"))
    assert set(ways(job, search_for("fsdp2"))) == set(ways(JOB, search_for("fsdp2")))


def test_a_way_that_rounds_otherwise_is_named_with_what_allows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "find_spec", lambda _: True)
    job = replace(JOB, parallel=parse_parallel("ddp=8"), precision="bf16")
    with pytest.raises(UsageError, match="--allow precision"):
        bases(job, search_for("deepspeed"))
    assert bases(job, search_for("deepspeed", allow=("precision",)))


def test_a_job_that_can_be_written_is_never_refused_whatever_else_is_wrong_with_it() -> None:
    job = replace(JOB, parallel=parse_parallel("fsdp=8"), optimizer="adamw-8bit")
    assert bases(job, search_for("hf", keep=("parallel",)))


@pytest.mark.parametrize("more", [(), ("--fill",)])
def test_nothing_is_traced_before_the_refusal(
    more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(changes, "find_spec", lambda _: None)
    monkeypatch.setattr(Workers, "run", lambda *_, **__: pytest.fail("a way was traced"))
    monkeypatch.setattr("memplan.plan.recommend.bases.largest_batches", lambda *_, **__: pytest.fail("batches, too"))
    line = ["recommend", "preset:gpt2", "--gpu", "h100-80g", "--gpus", "8", "--emit", "deepspeed", *more]
    assert main(line) == 2
    told = capsys.readouterr()
    assert "pip install deepspeed" in told.err
    assert not told.out


def test_the_best_can_be_written_though_another_way_is_faster(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "Workers", Here)
    path = tmp_path_factory.mktemp("sayable") / "deep.py"
    path.write_text(MODEL, encoding="utf-8")
    job, profile = JobSpec(target=FileTarget(path=path), batch_size=2), load_profile("h100-80g")
    kept = ("checkpoint", "split", "offload", "loss", "optimizer-step", "optimizer", "lora", "quantize", "precision")
    limits = {"gpus": 2, "processes": 1, "budget_seconds": 600, "keep": kept}
    free = recommend(job, profile, Search(**limits))  # type: ignore[arg-type]
    found = recommend(job, profile, search_for("torch", **limits))  # type: ignore[arg-type]
    assert free.best is not None
    assert found.best is not None
    assert free.best.candidate.spec.parallel.data == "fsdp2"
    assert {row.candidate.spec.parallel.data for row in found.rows} == {"ddp"}
    assert found.ended == "complete"
    assert not found.remedies
    assert "plain PyTorch" in " ".join(found.assumptions)
