"""Twenty-four real training loops: which of them leak, how much, why, and by whom it is kept."""

import gc
from collections.abc import Mapping

import pytest

from memplan.runtime.leaks.detector import GRACE, SAMPLE, LeakDetector
from memplan.runtime.leaks.records import Growing, Outcome
from memplan.runtime.leaks.report import LeakReport
from memplan.runtime.leaks.trend import PATIENCE
from memplan.runtime.meters import cpu
from tests.runtime.leaks.programs import LEAKS, NOT_LEAKS, STEPS, Program

RENEWED = {"parameters added": 1 / 3}
"""Share of what leaks that no sampled birth shows: every gradient is made anew in every step."""


@pytest.fixture(autouse=True)
def _counted() -> None:
    if not cpu.can_count():
        pytest.skip("no C++ compiler")
    gc.collect()


def watched(program: Program, steps: int) -> LeakDetector:
    with LeakDetector("cpu") as detector:
        program.loop(steps, detector.step)
    return detector


def first_half(programs: Mapping[str, object]) -> list[object]:
    """All of them, those of the second half as slow ones: each takes seconds."""
    names = list(programs)
    half = len(names) // 2
    return [*names[:half], *(pytest.param(name, marks=pytest.mark.slow) for name in names[half:])]


@pytest.mark.parametrize("name", first_half(LEAKS))
def test_leaks_are_found_measured_explained_and_followed(name: str) -> None:
    program = LEAKS[name]
    [report] = watched(program, PATIENCE + SAMPLE + GRACE).reports
    assert report.outcome is Outcome.LEAK
    assert report.codes == (program.code,)
    assert any(program.chain in str(site.chain) for site in report.sites if site.leaks)
    assert rate(report) == pytest.approx(program.bytes_per_step, rel=0.01)
    assert report.explained == program.bytes_per_step * (1 - RENEWED.get(name, 0))


def rate(report: LeakReport) -> float:
    """Bytes a step; from their number where noise hides them."""
    if report.growth is not None:
        return report.growth.rate
    assert report.count is not None
    return report.count.rate * sum(site.nbytes for site in report.sites) / sum(site.storages for site in report.sites)


@pytest.mark.parametrize("name", first_half(NOT_LEAKS))
def test_nothing_else_is_called_a_leak(name: str) -> None:
    detector = watched(NOT_LEAKS[name], STEPS)
    assert not detector.leaks
    assert not isinstance(detector.verdict, Growing)
    assert not isinstance(detector.count_verdict, Growing)


def test_a_buffer_that_fills_is_told_by_its_bound() -> None:
    [report] = watched(NOT_LEAKS["replay buffer of 150"], 120).reports
    assert report.outcome is Outcome.FILLING
    assert {site.chain.bound for site in report.sites} == {150}
    assert report.codes == ()


def test_steps_that_get_larger_keep_nothing() -> None:
    [report] = watched(NOT_LEAKS["curriculum of 120"], 120).reports
    assert (report.outcome, report.sites, report.codes) == (Outcome.LARGER, (), ())
    assert report.growth is not None
    assert report.unexplained == report.growth.rate
