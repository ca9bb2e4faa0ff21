"""Devices and ranks beside each other: one holds more, one is behind."""

from dataclasses import replace

from memplan.runtime.monitor.judge import judge
from memplan.runtime.monitor.processes import cpu_from_outside
from memplan.runtime.monitor.records import Check, Level
from memplan.units import GIB, MIB
from tests.runtime.monitor.readings import HOST, card, reading


def on_host(*resident: int, history: tuple[Check, ...] = ()) -> Check:
    devices = [replace(cpu_from_outside(HOST), resident=size) for size in resident]
    return judge(reading(*devices), history, ranks=list(range(len(resident))))


def found(check: Check, code: str) -> list[tuple[int | None, str]]:
    return [(health.rank, each.message) for health in check.devices for each in health.reasons if each.code == code]


def test_ranks_that_share_a_host_are_compared_by_what_each_holds() -> None:
    [(rank, message)] = found(on_host(600 * MIB, 2 * GIB, 400 * MIB), "MM007")
    assert rank == 1
    assert message == "rank 1 holds 2.00 GiB, rank 2 400.00 MiB; spread evenly, each would hold 1016.00 MiB"


def test_what_processes_import_is_no_unevenness() -> None:
    assert not found(on_host(400 * MIB, 600 * MIB), "MM007")
    assert not found(on_host(20 * GIB, 21 * GIB), "MM007")


def test_one_process_is_not_compared_with_itself() -> None:
    assert not found(judge(reading(replace(cpu_from_outside(HOST), resident=GIB))), "MM007")


def test_cards_say_what_each_would_have_left() -> None:
    cards = [card(index, peak_allocated=size * GIB) for index, size in enumerate((20, 60))]
    [(_, message)] = found(judge(reading(*cards)), "MM007")
    assert "spread evenly, each would have" in message


def paced(*steps: tuple[int, int]) -> Check:
    history: list[Check] = []
    for each in steps:
        cards = card(0), card(1)
        history.append(judge(reading(*cards), history, ranks=[0, 1], steps=each, step=min(each)))
    return history[-1]


def test_a_rank_that_has_not_come_to_where_the_first_was_two_checks_ago_is_behind() -> None:
    check = paced((10, 8), (20, 9), (30, 9))
    [(rank, message)] = found(check, "MM010")
    assert rank == 1
    assert message.startswith("rank 1 is 21 steps behind rank 0")
    assert check.level is Level.NORMAL


def test_ranks_that_are_read_at_different_times_are_not_behind() -> None:
    assert not found(paced((10, 1), (20, 11), (30, 21)), "MM010")
    assert not found(paced((10, 9), (10, 9), (10, 9)), "MM010")
    assert not found(paced((10, 0), (20, 0)), "MM010")
