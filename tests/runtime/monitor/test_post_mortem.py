"""Ends of runs, and what is made of them. Figures as CUDA's error message has them, added up by hand."""

from dataclasses import replace
from typing import Any

import pytest

from memplan.findings.rules import MONITOR
from memplan.runtime.monitor.outcome import Ending
from memplan.runtime.monitor.post_mortem import LAST_CHECKS, post_mortem
from memplan.runtime.monitor.wire import Message
from memplan.units import GIB, MIB, format_bytes
from tests.runtime.monitor.readings import TOTAL, card, judged, plan, reading

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB."


def ending(**changes: Any) -> Ending:
    return replace(Ending(code=1, seconds=9.0, oom=None, ooms=0, why="", oom_kills=0), **changes)


def refused(asked: int, device: Any) -> Message:
    facts = {
        "device": 0,
        "asked": asked,
        "device_total": TOTAL,
        "device_free": TOTAL - device.used,
        "snapshot": "s.pkl",
    }
    return Message(kind="oom", pid=1, reading=reading(device), facts=facts)


FULL = card(allocated=74 * GIB, reserved=77 * GIB, inactive=3 * GIB, used=79 * GIB, peak_reserved=77 * GIB)
HOLED = card(allocated=60 * GIB, reserved=78 * GIB, inactive=18 * GIB, used=79 * GIB)
LIMITED = card(allocated=30 * GIB, reserved=31 * GIB, inactive=GIB, used=32 * GIB)
ALONE = card(allocated=70 * GIB, reserved=77 * GIB, inactive=GIB, used=78 * GIB)
# What an H200 had left as one GiB was refused, on a card of this size: 17 MiB in pieces, 1,009 MiB free.
BRIMFUL = card(allocated=78 * GIB, reserved=78 * GIB + 17 * MIB, inactive=17 * MIB, used=80 * GIB - 1009 * MIB)
SHARED = card(allocated=30 * GIB, reserved=31 * GIB, inactive=GIB, used=79 * GIB)


@pytest.mark.parametrize(
    ("device", "asked", "code"),
    [
        (FULL, 6 * GIB, "MM101"),
        (ALONE, 9 * GIB - 20 * MIB + 1, "MM101"),  # A byte more than pieces and free memory have beside a segment.
        (ALONE, 9 * GIB - 20 * MIB, "MM102"),
        (BRIMFUL, GIB, "MM101"),
        (HOLED, 6 * GIB, "MM102"),
        (SHARED, 6 * GIB, "MM103"),
        (LIMITED, 6 * GIB, "MM107"),
    ],
)
def test_reasons_for_one_message(device: Any, asked: int, code: str) -> None:
    found = post_mortem(ending(why=OOM, oom=refused(asked, device), ooms=1), [], None)
    assert found is not None
    assert found.code == code
    assert f"{format_bytes(asked)} refused on cuda:0" in found.sentence
    assert found.snapshot == "s.pkl"
    assert "memplan estimate" in found.prediction


def test_a_message_without_figures_is_told_as_it_is() -> None:
    found = post_mortem(ending(why=OOM), judged([card()], plan=plan()), plan())
    assert found is not None
    assert (found.code, found.sentence) == ("MM101", OOM)
    assert "the prediction held" in found.prediction


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"why": "RuntimeError: [enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"}, "MM104"),
        ({"why": "MemoryError: "}, "MM104"),
        ({"code": -9, "oom_kills": 1}, "MM105"),
        ({"why": "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.", "oom_kills": 2}, "MM105"),
        ({"code": -9}, "MM106"),
        ({"why": "ValueError: no"}, None),
        ({"code": -11}, None),
        ({"code": 0, "oom_kills": 1}, None),
        ({"code": 0, "oom": refused(GIB, FULL), "ooms": 3}, None),
        ({"code": 1, "oom": refused(6 * GIB, FULL), "ooms": 1}, "MM101"),
        ({"code": 1, "oom": refused(GIB, FULL), "ooms": 1, "why": "ValueError: no"}, None),
    ],
)
def test_other_ends(facts: dict[str, Any], code: str | None) -> None:
    found = post_mortem(ending(**facts), judged([card()] * 20), None)
    assert (found and found.code) == code
    if found:
        assert found.code in MONITOR
        assert len(found.last) == LAST_CHECKS
        assert found.last[-1].number == 19


def test_what_it_says_of_the_prediction() -> None:
    oom = refused(6 * GIB, FULL)
    end = ending(why=OOM, oom=oom, ooms=1)
    over = judged([FULL], plan=plan())
    within = judged([card()], plan=plan())
    said = {
        "foretold": post_mortem(end, over, plan(verdict="oom")),
        "failed: 77.00 GiB": post_mortem(end, over, plan()),
        "failed: 80.00 GiB were needed": post_mortem(end, within, plan()),
        "nothing was measured": post_mortem(end, [], plan()),
        "held up to the last check": post_mortem(ending(code=-9, oom_kills=1), within, plan()),
    }
    for words, found in said.items():
        assert found is not None
        assert words in found.prediction


def test_exit_codes_are_the_shells() -> None:
    assert [ending(code=code).exit_code for code in (0, 3, -9, -15)] == [0, 3, 137, 143]
