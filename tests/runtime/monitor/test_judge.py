"""What a reading is judged to be; worked out by hand from the definitions in docs/monitor.md."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.runtime.monitor.judge import judge
from memplan.runtime.monitor.records import Level, RegionUse, Thresholds
from memplan.units import GIB, MIB
from tests.runtime.monitor.readings import HOST, TOTAL, card, codes, filled, from_outside, judged, plan, reading

LIMITS = Thresholds()


@pytest.mark.parametrize(
    ("share", "level"),
    [(0.5, Level.NORMAL), (0.91, Level.NORMAL), (0.93, Level.WARNING), (0.96, Level.CRITICAL), (0.98, Level.EMERGENCY)],
)
def test_levels_begin_at_their_thresholds(share: float, level: Level) -> None:
    check = judge(reading(filled(share)))
    assert check.devices[0].level is level
    assert check.level is level
    assert ("MM001" in codes(check)) == (level > Level.NORMAL)


def test_cache_that_the_allocator_could_give_back_is_no_demand() -> None:
    full = card(allocated=10 * GIB, reserved=78 * GIB, inactive=2 * GIB, peak_allocated=11 * GIB, used=79 * GIB)
    [health] = judge(reading(full)).devices
    # 10 alive and 2 stuck beside them are more than the peak of 11; 1 is outside the allocator.
    assert health.demand == 13 * GIB
    assert health.level is Level.NORMAL


def test_the_peak_is_demand_since_the_next_step_has_it_again() -> None:
    [health] = judge(reading(card(peak_allocated=75 * GIB, peak_reserved=76 * GIB))).devices
    assert health.demand == 76 * GIB
    assert health.level is Level.CRITICAL


def test_seen_from_outside_a_full_card_is_a_warning_at_most() -> None:
    [health] = judge(reading(from_outside(used=TOTAL - MIB))).devices
    assert (health.level, health.demand) == (Level.WARNING, TOTAL - MIB)
    assert "caches included" in health.reasons[0].message


def test_the_host_has_levels_of_its_own() -> None:
    low = replace(HOST, available=2 * GIB)
    check = judge(reading(host=low))
    assert check.devices[0].level is Level.NORMAL
    assert check.host.level is Level.EMERGENCY
    assert check.level is Level.EMERGENCY
    assert check.recommendations[0].code == "MM002"


@given(shares=st.lists(st.floats(0.1, 1.0), min_size=2, max_size=30))
def test_levels_do_not_flap(shares: list[float]) -> None:
    """A level that was left comes back only after the share has moved by more than the margin."""
    levels = [check.devices[0].level for check in judged([filled(share) for share in shares])]
    begins = {Level.WARNING: LIMITS.warning, Level.CRITICAL: LIMITS.critical, Level.EMERGENCY: LIMITS.emergency}
    for level, begin in begins.items():
        was = False
        for share, now in zip((filled(each).used / TOTAL for each in shares), levels, strict=True):
            is_held = now >= level
            if is_held and not was:
                assert share >= begin
            if was and not is_held:
                assert share < begin - LIMITS.release
            was = is_held


@given(centre=st.floats(0.3, 0.99), swings=st.lists(st.floats(-0.0095, 0.0095), min_size=3, max_size=40))
def test_a_share_that_swings_by_less_than_the_margin_makes_one_change_at_most(
    centre: float, swings: list[float]
) -> None:
    levels = [check.devices[0].level for check in judged([filled(centre + swing) for swing in swings])]
    assert sum(one is not other for one, other in pairwise(levels)) <= 1
    assert levels == sorted(levels)


@given(one=st.floats(0.05, 1.0), other=st.floats(0.05, 1.0))
def test_more_demand_is_never_a_lower_level(one: float, other: float) -> None:
    low, high = sorted((one, other))
    levels = [judge(reading(filled(share))).level for share in (low, high)]
    assert levels == sorted(levels)


def test_drift_is_beyond_the_upper_end_of_the_interval() -> None:
    # 14 GiB at most, 1 of them outside the allocator: segments up to 13.
    for reserved, found in ((13 * GIB, set()), (13 * GIB + 1, {"MM003"})):
        check = judge(reading(card(peak_reserved=reserved)), (), plan())
        assert codes(check) == found
        [health] = check.devices
        assert (health.figure, health.measured, health.predicted) == ("reserved", reserved, 12 * GIB)
        assert (health.predicted_high, health.drift) == (13 * GIB, reserved - 13 * GIB)


def test_other_processes_are_no_drift() -> None:
    check = judge(reading(card(used=40 * GIB)), (), plan())
    assert check.devices[0].drift == -GIB
    assert codes(check) == {"MM008"}
    assert "27.00 GiB" in check.recommendations[0].message


def test_from_outside_the_most_that_was_seen_is_compared() -> None:
    checks = judged([from_outside(used=used * GIB) for used in (5, 15, 6)], plan=plan())
    assert [check.devices[0].measured for check in checks] == [5 * GIB, 15 * GIB, 15 * GIB]
    assert checks[-1].devices[0].drift == GIB
    assert codes(checks[-1]) == {"MM003"}


@pytest.mark.parametrize("other", [plan(total=40 * GIB, gpu="a100-40g"), plan(gpu="cpu", total=0)])
def test_a_plan_for_another_device_raises_a_note_and_no_level(other: object) -> None:
    check = judge(reading(card(peak_reserved=70 * GIB)), (), other)
    assert codes(check) == {"MM009"}
    assert check.level is Level.NORMAL
    assert check.notes == ()  # It is said once.


def test_cpu_tensors_are_compared_where_they_are_counted() -> None:
    cpu = from_outside(used=20 * GIB)
    cpu = replace(cpu, device="cpu", uuid="", allocated=GIB, requested=GIB, peak_allocated=3 * GIB)
    small = plan(gpu="cpu", total=0, usable=0, allocated=2 * GIB, reserved=2 * GIB, device=2 * GIB, high=2 * GIB)
    check = judge(reading(cpu), (), small)
    assert (check.devices[0].figure, check.devices[0].drift) == ("allocated", GIB)
    uncounted = judge(reading(replace(cpu, allocated=None, peak_allocated=None)), (), small)
    assert uncounted.devices[0].drift is None
    assert "not counted" in uncounted.notes[0]


def test_fragmentation_begins_and_ends_apart() -> None:
    stuck = [round(share * 12 * GIB) for share in (0.1, 0.21, 0.19, 0.17)]
    checks = judged([card(inactive=size) for size in stuck])
    assert ["MM005" in codes(check) for check in checks] == [False, True, True, False]


def test_a_retry_is_told_while_it_is_in_the_window() -> None:
    limits = Thresholds(window=3)
    history: list = []
    told = []
    for retries in (4, 4, 6, 6, 6, 6):
        check = judge(reading(card(retries=retries)), history[-limits.window :], None, limits)
        history.append(check)
        told.append("MM006" in codes(check))
    assert told == [False, False, True, True, True, False]


def test_uneven_cards_are_told_on_the_fullest() -> None:
    cards = [card(index, peak_allocated=size * GIB) for index, size in enumerate((20, 60, 22))]
    check = judge(reading(*cards))
    assert [bool(health.reasons) for health in check.devices] == [False, True, False]
    [reason] = check.devices[1].reasons
    assert (reason.code, "50 %" in reason.message) == ("MM007", True)


def test_ranks_are_kept_and_named() -> None:
    check = judge(reading(card(0), card(0, uuid="GPU-9", peak_allocated=79 * GIB)), ranks=[0, 1])
    assert [health.rank for health in check.devices] == [0, 1]
    assert any("of rank 1" in each.message for each in check.recommendations)


def test_one_recommendation_for_each_code_worst_first() -> None:
    cards = [filled(0.86), filled(0.98, device="cuda:1", uuid="GPU-1"), card(2, inactive=5 * GIB)]
    check = judge(reading(*cards), regions=[RegionUse(name="forward", bytes=7)])
    assert [each.code for each in check.recommendations] == ["MM001", "MM005", "MM007"]
    assert "cuda:1" in check.recommendations[0].message
    assert check.regions[0].name == "forward"
    assert all(each.fix for each in check.recommendations)


def test_checks_are_numbered() -> None:
    assert [check.number for check in judged([card()] * 3)] == [0, 1, 2]
