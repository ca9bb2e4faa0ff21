"""A checkpoint plan in the place of full checkpointing is written, fits, and costs no more."""

from dataclasses import replace
from pathlib import Path

import pytest

from memplan.hardware.catalog import load_profile
from memplan.job.spec import FileTarget, JobSpec
from memplan.plan.recommend.compose import recommend
from memplan.plan.recommend.records import Search
from tests.plan.recommend.test_recommend import MODEL


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
