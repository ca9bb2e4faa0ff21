"""What is kept of a run: levels over time, peaks, a curve of bounded length."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from memplan.runtime.monitor.judge import judge
from memplan.runtime.monitor.records import Level
from memplan.runtime.monitor.tally import CheckTally
from memplan.units import GIB
from tests.runtime.monitor.readings import card, filled, from_outside, judged, reading


def tally_of(checks: list) -> CheckTally:
    tally = CheckTally(started=0.0, window=256)
    for check in checks:
        tally.add(check)
    return tally


def test_changes_are_those_of_the_level() -> None:
    tally = tally_of(judged([filled(share) for share in (0.5, 0.5, 0.93, 0.93, 0.98, 0.5)]))
    assert [(change.level, change.step) for change in tally.changes] == [
        (Level.NORMAL, 0), (Level.WARNING, 2), (Level.EMERGENCY, 4), (Level.NORMAL, 5),
    ]  # fmt: skip
    assert tally.level is Level.EMERGENCY
    assert tally.changes[-1].sentence == ""


def test_a_recommendation_has_the_last_figures_of_its_worst_level() -> None:
    tally = tally_of(judged([filled(share) for share in (0.86, 0.98, 0.99, 0.86)]))
    [found] = tally.recommendations
    assert found.code == "MM001"
    assert "(99 %)" in found.message


def test_what_was_seen_before_a_process_spoke_stands_back() -> None:
    cpu = replace(from_outside(), device="cpu", uuid="")
    seen = [judge(reading(each)) for each in (cpu, from_outside(3), card(peak_reserved=20 * GIB), card())]
    [peak] = tally_of(seen).peaks
    assert (peak.device, peak.reserved, peak.used) == ("cuda:0", 20 * GIB, 13 * GIB)
    ranked = judge(reading(card(), card(uuid="other")), ranks=[0, 1])
    assert [each.rank for each in tally_of([*seen, ranked]).peaks] == [0, 1]


@given(sizes=st.lists(st.integers(0, 60), min_size=1, max_size=2000))
def test_a_curve_stays_small_and_its_times_rise(sizes: list[int]) -> None:
    tally = CheckTally(started=0.0, window=4)
    check = judge(reading(card()))
    for number, size in enumerate(sizes):
        read = reading(card(allocated=size), seconds=float(number))
        tally.add(replace(check, reading=read))
    times = [seconds for seconds, _, _ in tally.curve]
    assert times == sorted(set(times))
    assert 1 <= len(times) <= 400
    assert len(times) >= min(len(sizes), 200)
    assert all(tally.curve[index][1] == sizes[int(seconds)] for index, seconds in enumerate(times))
