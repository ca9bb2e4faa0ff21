"""Every text report begins with its verdict, however much follows."""

from collections.abc import Callable

import pytest
from rich.text import Text

from memplan.hardware.catalog import load_profile
from memplan.report.batch import text as batch
from memplan.report.checkpoint import text as checkpoint
from memplan.report.estimate import text as estimate
from memplan.report.recommend import text as recommend
from memplan.report.reuse import text as reuse
from tests.report import example_batches, example_checkpoint_plans, example_recommendations, example_reuse_plans
from tests.report.example_estimates import OOM

Lines = list[Text]
REPORTS: dict[str, Callable[[bool], Lines]] = {
    "estimate": lambda quiet: estimate.render([OOM], quiet=quiet),
    "batch": lambda quiet: batch.render("gpt.py", [(load_profile("t4"), example_batches.answer())], quiet=quiet),
    "checkpoint-plan": lambda quiet: checkpoint.render(example_checkpoint_plans.answer(), quiet=quiet),
    "recommend": lambda quiet: recommend.render(example_recommendations.answer(), quiet=quiet),
    "reuse-plan": lambda quiet: reuse.render(example_reuse_plans.answer(), quiet=quiet),
}


@pytest.mark.parametrize("command", REPORTS)
def test_the_verdict_comes_first(command: str) -> None:
    whole, verdict = REPORTS[command](False), REPORTS[command](True)
    assert len(whole) > len(verdict)
    assert [line.plain for line in whole[: len(verdict)]] == [line.plain for line in verdict]
