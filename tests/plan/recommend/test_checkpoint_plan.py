"""A checkpoint plan in the place of full checkpointing is written, fits, and costs no more."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memplan.hardware.catalog import load_profile
from memplan.job.parallel import Parallel
from memplan.job.spec import FileTarget, JobSpec, PresetTarget
from memplan.plan.recommend.checkpoint_plan import can_be_planned, in_its_place
from memplan.plan.recommend.compose import recommend
from memplan.plan.recommend.records import Candidate, Evaluated, Search
from tests.plan.recommend.models import MODEL
from tests.report.example_recommendations import answer


def _evaluated(*changes: str, **fields: Any) -> Evaluated:
    found, groups = answer().rows[0], ("checkpoint",) if "--checkpoint full" in changes else ()
    spec = replace(JobSpec(target=PresetTarget(name="gpt2"), checkpoint="full"), **fields)
    return replace(found, candidate=Candidate(spec=spec, changes=changes, groups=groups))


def test_sharded_jobs_are_planned_but_no_pipelines() -> None:
    assert can_be_planned(_evaluated(parallel=Parallel(data="fsdp2", shards=8)))
    assert not can_be_planned(_evaluated(parallel=Parallel(data="fsdp2", shards=4, pipeline=2)))
    assert not can_be_planned(_evaluated(checkpoint="none"))
    assert not can_be_planned(_evaluated(compile="inductor"))


def test_a_plan_that_is_not_made_has_no_file() -> None:
    for changes in ((), ("--checkpoint full",)):
        candidate = in_its_place(_evaluated(*changes))
        assert candidate.changes == ("--checkpoint PLAN",)
        assert candidate.groups == ("checkpoint",)
    assert in_its_place(_evaluated(), Path("best.json")).spec.checkpoint == "best.json"


@pytest.mark.slow
def test_a_plan_takes_the_place_of_full_checkpointing(tmp_path: Path) -> None:
    path, plan = tmp_path / "deep.py", tmp_path / "best.plan.json"
    path.write_text(MODEL, encoding="utf-8")
    profile = replace(load_profile("rtx-3060"), usable_bytes=7 << 28)
    keep = ("offload", "loss", "split", "optimizer-step", "precision", "optimizer", "lora", "quantize")
    job = JobSpec(target=FileTarget(path=path), batch_size=8)
    answer = recommend(job, profile, Search(processes=2, budget_seconds=900, keep=keep, plan_file=plan))
    words = {row.candidate.words: row for row in answer.rows}
    assert plan.is_file()
    assert words[f"--checkpoint {plan}"].time.total <= words["--checkpoint full"].time.total
