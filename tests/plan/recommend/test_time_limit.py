"""What a search may take, in the words of the command line and as numbers."""

import math
import time

import pytest

import memplan
from memplan.errors import UsageError
from memplan.hardware.catalog import load_profile
from memplan.job.spec import JobSpec, PresetTarget
from memplan.plan.recommend.compose import recommend
from memplan.plan.recommend.records import Search
from memplan.plan.recommend.time_limit import read_time_limit


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        ("60s", (60.0, None)),
        ("1.5m", (90.0, None)),
        (" 40traces", (math.inf, 40)),
        ("40 traces", (math.inf, 40)),
        (20, (20.0, None)),
        (0.5, (0.5, None)),
        (1e20, (1e20, None)),
    ],
)
def test_a_time_or_a_number_of_traces(given: str | float, limit: tuple[float, int | None]) -> None:
    assert read_time_limit(given) == limit


@pytest.mark.parametrize(
    "given", ["", "0s", "-1s", "0traces", "traces", "4.5traces", "soon", 0, -1.0, math.inf, math.nan]
)
def test_what_is_neither_is_an_error(given: str | float) -> None:
    with pytest.raises(UsageError, match="--time-limit takes a time or a number of traces above 0"):
        read_time_limit(given)


def test_python_takes_the_words_of_the_command_line() -> None:
    with pytest.raises(UsageError, match=r"time_limit takes .* as 60s or 40traces, not 'for ever'"):
        memplan.recommend("preset:gpt2", time_limit="for ever")


def test_what_was_done_before_a_search_is_of_its_time() -> None:
    job, search = JobSpec(target=PresetTarget(name="gpt2")), Search(budget_seconds=60)
    answer = recommend(job, load_profile("t4"), search, started=time.perf_counter() - 61)
    assert (answer.proof.ending, answer.traces) == ("not_found", 0)
