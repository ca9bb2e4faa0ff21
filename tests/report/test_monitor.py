"""Reports of watched runs: their text, their JSON by its schema, the rows of the live view."""

import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from syrupy.assertion import SnapshotAssertion

from memplan.report.monitor import json as monitor_json
from memplan.report.monitor import live as monitor_live
from memplan.report.monitor import text as monitor
from memplan.runtime.monitor.judge import judge
from memplan.runtime.monitor.log import LINES, EndLine, OomLine, StartLine
from memplan.runtime.monitor.outcome import Ending, PostMortem, RunOutcome
from memplan.runtime.monitor.post_mortem import post_mortem
from memplan.runtime.monitor.records import Thresholds
from memplan.runtime.monitor.tally import CheckTally
from memplan.runtime.monitor.wire import Message
from memplan.units import GIB
from tests.contract.goldens import obey
from tests.runtime.monitor.readings import card, filled, judged, plan, reading

FULL = card(allocated=74 * GIB, reserved=77 * GIB, inactive=3 * GIB, used=79 * GIB, peak_allocated=75 * GIB,
            peak_reserved=77 * GIB)  # fmt: skip

PLAN = plan(allocated=62 * GIB, reserved=64 * GIB, device=65 * GIB, low=63 * GIB, high=70 * GIB)


def outcome(*, failed: bool = True, **changes: Any) -> RunOutcome:
    """A run of eight calm checks and two of a full card."""
    checks = judged([filled(0.5)] * 8 + [FULL, FULL], plan=PLAN)
    tally = CheckTally(started=0.0, window=256)
    for check in checks:
        tally.add(check)
    facts: dict[str, Any] = {
        "device": 0,
        "asked": 6 * GIB,
        "device_total": 80 * GIB,
        "device_free": GIB,
        "snapshot": "memplan-oom-7.pickle",
    }
    oom = Message(kind="oom", pid=7, step=9, reading=reading(FULL), facts=facts)
    why = "torch.OutOfMemoryError: CUDA out of memory."
    good = Ending(code=0, seconds=75.0, oom=None, ooms=0, why="", oom_kills=0)
    ending = replace(good, code=1, oom=oom, ooms=1, why=why) if failed else good
    found: PostMortem | None = post_mortem(ending, checks, PLAN)
    made = RunOutcome(
        command=("python", "train.py", "--lr", "3e-4"),
        plan=PLAN,
        ending=ending,
        checks=tally.checks,
        steps=tally.steps,
        level=tally.level,
        changes=tuple(tally.changes),
        peaks=tally.peaks,
        resident=tally.resident,
        curve=tuple(tally.curve),
        recommendations=tally.recommendations,
        post_mortem=found,
        notes=(),
    )
    return replace(made, **changes)


def text(made: RunOutcome, **how: Any) -> str:
    return "\n".join(line.plain for line in monitor.render(made, **how)) + "\n"


def test_a_run_that_ran_out(snapshot: SnapshotAssertion) -> None:
    assert text(outcome()) == snapshot


def test_a_run_that_went_well(snapshot: SnapshotAssertion) -> None:
    made = outcome(failed=False, recommendations=(), changes=outcome().changes[:1], level=outcome().changes[0].level)
    assert text(made) == snapshot


def test_quiet_says_why_and_how_it_ended() -> None:
    lines = text(outcome(), quiet=True).splitlines()
    assert lines[0] == "post-mortem"
    assert lines[-1].startswith("✗ OUT OF MEMORY (MM101) · exit 1 · 1 m 15 s")
    assert "what to do" not in lines


def test_a_kill_that_nobody_explains_is_not_called_out_of_memory() -> None:
    killed = Ending(code=-9, seconds=75.0, oom=None, ooms=0, why="", oom_kills=0)
    made = outcome(ending=killed, post_mortem=post_mortem(killed, judged([filled(0.5)] * 2, plan=PLAN), PLAN))
    assert text(made).splitlines()[-1].startswith("✗ KILLED (MM106) · signal 9")


@pytest.mark.parametrize("width", [20, 60, 80, 100, 300])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    made = outcome(command=("python", "x" * 500), notes=("n " * 300,))
    assert max(cell_len(line) for line in text(made, width=width).splitlines()) <= min(max(width, 60), 100)


def test_what_others_wrote_is_shown_inert() -> None:
    hostile = replace(outcome().changes[-1], sentence="\x1b[31mred\n")
    shown = text(outcome(changes=(hostile,), command=("py\x1b[2Jthon",), notes=("\x07bell",)))
    assert not any(char in shown for char in "\x1b\x07")


@pytest.mark.parametrize("made", [outcome(), outcome(failed=False, plan=None, steps=None)])
def test_the_report_is_of_its_schema(made: RunOutcome) -> None:
    found = json.loads(monitor_json.render(made))
    obey("monitor", found)
    assert found["ending"]["exit_code"] == made.ending.exit_code
    assert len({len(column) for column in found["curve"].values()}) == 1
    if made.post_mortem:
        assert (found["post_mortem"]["code"], len(found["post_mortem"]["last"])) == ("MM101", 8)
        assert found["post_mortem"]["snapshot"] == "memplan-oom-7.pickle"


def test_lines_of_the_log_are_of_the_schema() -> None:
    made = outcome()
    assert made.ending.oom is not None
    lines = [
        StartLine(0.0, made.command, made.plan, Thresholds()),
        judged([FULL] * 30)[-1],
        OomLine(1.0, made.ending.oom),
        EndLine(2.0, made.ending),
    ]
    for line in map(LINES.plain, lines):
        obey("monitor", {"schema_version": "1.0", **line})
        with pytest.raises(jsonschema.ValidationError):
            obey("monitor", {"schema_version": "1.0", **line, "seconds": "now"})


@given(
    cards=st.lists(st.floats(0, 1.5).map(filled), min_size=1, max_size=9),
    width=st.integers(1, 200),
    seconds=st.floats(0, 1e6),
)
def test_the_live_view_is_always_as_many_rows_of_the_width(cards: list[Any], width: int, seconds: float) -> None:
    check = judged(cards)[-1]
    rows = monitor_live.render(check, seconds=seconds, width=width)
    assert len(rows) == monitor_live.ROWS
    assert all("\n" not in row.plain and row.cell_len <= min(max(width, 60), 100) for row in rows)


def test_the_live_view_shows_the_fullest_two() -> None:
    cards = [filled(share, device=f"cuda:{index}", uuid=str(index)) for index, share in enumerate((0.2, 0.9, 0.4, 0.8))]
    rows = [row.plain for row in monitor_live.render(judge(reading(*cards)), seconds=61)]
    assert "warning" in rows[0]
    assert rows[0].endswith("1 m 01 s")
    assert rows[1].startswith("cuda:1")
    assert rows[2].startswith("cuda:3")
    assert "(+2 more)" in rows[1]
    assert rows[3].startswith("host")
