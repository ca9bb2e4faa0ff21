"""Reports of buffer placements: figures add up, pictures are well formed, lines fit."""

import json
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.plan.reuse.answer_records import StepContext
from memplan.report.draw.layout import MIN_WIDTH
from memplan.report.endings import WORDS
from memplan.report.reuse import html as reuse_html
from memplan.report.reuse import json as reuse_json
from memplan.report.reuse import svg as reuse_svg
from memplan.report.reuse import text as reuse
from memplan.report.reuse.text import raster
from tests.contract.goldens import obey
from tests.report.example_reuse_plans import AROUND, BUFFERS, PLACEMENT, RESULTS, answer
from tests.report.html.reader import Reader


@pytest.mark.parametrize("width", [MIN_WIDTH, 80, 120])
@pytest.mark.parametrize("outcome", RESULTS)
@pytest.mark.parametrize("around", [AROUND, None], ids=["step", "file"])
def test_lines_fit_and_the_verdict_is_said(outcome: str, around: StepContext | None, width: int) -> None:
    asked = answer(outcome, around=around, capacity=6000)
    lines = [line.plain for line in reuse.render(asked, width=width, explain=True)]
    assert all(len(line) <= width for line in lines)
    text = "\n".join(lines)
    assert WORDS[outcome] in text
    assert ("arena 6.50 KiB" in text) == (outcome != "infeasible")
    quiet = reuse.render(asked, width=width, quiet=True)
    assert len(quiet) == (3 if outcome == "feasible" else 2)
    assert not any("…" in line.plain for line in quiet) or width < 80


def test_the_capacity_that_was_asked_for_is_said() -> None:
    assert ("capacity", 9000) in reuse.compared(answer(capacity=9000))
    assert "capacity" not in dict(reuse.compared(answer()))


def test_of_several_steps_one_is_counted_without_reuse() -> None:
    asked = answer(around=replace(AROUND, repetitions=2))
    assert asked.total_bytes == 8704 // 2
    assert "4 buffers of 2 steps" in "\n".join(line.plain for line in reuse.render(asked))


def test_the_text_adds_up() -> None:
    lines = {line.plain[:36].strip(): line.plain[36:].strip() for line in reuse.compared_lines(answer())}
    assert lines["arena"] == "6.50 KiB"
    assert lines["without reuse"] == "8.50 KiB"
    assert lines["together"] == "16.27 KiB"
    assert lines["reserved by the caching allocator"] == "20.00 MiB"


@pytest.mark.parametrize("outcome", RESULTS)
@pytest.mark.parametrize("around", [AROUND, None], ids=["step", "file"])
def test_json_obeys_its_schema(outcome: str, around: StepContext | None) -> None:
    found: dict[str, Any] = json.loads(reuse_json.render(answer(outcome, around=around, capacity=6000)))
    obey("reuse-plan", found)
    assert found["result"] == outcome
    assert found["fits"] == (outcome in {"optimal", "feasible"})
    assert found["lower_bound_bytes"] == {"optimal": 6656, "infeasible": 6656}.get(outcome, 6144)
    assert found["height_bytes"] == (None if outcome == "infeasible" else 6656)


@pytest.mark.parametrize("outcome", RESULTS)
def test_the_picture_is_well_formed_and_has_every_buffer(outcome: str) -> None:
    root = ET.fromstring(reuse_svg.render(answer(outcome, capacity=6000)))
    paths = root.findall(".//{http://www.w3.org/2000/svg}path")
    assert len(paths) == (0 if outcome == "infeasible" else len(BUFFERS))
    # A gap splits a buffer's area in two.
    assert sorted(path.attrib["d"].count("M") for path in paths) in ([], [1, 1, 1, 2])


@pytest.mark.parametrize("outcome", RESULTS)
@pytest.mark.parametrize("around", [AROUND, None], ids=["step", "file"])
def test_the_page_holds_verdict_figures_and_picture(outcome: str, around: StepContext | None) -> None:
    asked = answer(outcome, around=around, capacity=6000)
    page = reuse_html.render(asked)
    assert page.startswith("<!DOCTYPE html>")
    assert WORDS[outcome] in page
    assert page.count("<script") == 2  # Its own two: an owner is called "<script>".
    assert reuse_svg.render(asked, alone=False).strip() in page
    assert json.loads(Reader(page).report) == json.loads(reuse_json.render(asked))


def test_many_buffers_are_all_drawn_though_few_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reuse_svg, "MOST_NAMED", 1)
    root = ET.fromstring(reuse_svg.render(answer()))
    paths = root.findall(".//{http://www.w3.org/2000/svg}path")
    assert sum(path.attrib["d"].count("M") for path in paths) == 5
    assert sum(path.find("{http://www.w3.org/2000/svg}title") is not None for path in paths) == 1


@given(st.integers(1, 40), st.integers(1, 20))
def test_the_raster_holds_the_area_of_all_buffers(columns: int, rows: int) -> None:
    grid = raster(BUFFERS, PLACEMENT, AROUND.labels, columns=columns, rows=rows, height=PLACEMENT.height)
    drawn = sum(cell.share for row in grid for cell in row) / (columns * rows)
    area = sum(b.size * (b.end - b.start - sum(end - start for start, end in b.gaps)) for b in BUFFERS)
    assert drawn == pytest.approx(area / (PLACEMENT.height * 10))


def test_a_cell_is_called_after_what_fills_most_of_it() -> None:
    grid = raster(BUFFERS, PLACEMENT, AROUND.labels, columns=2, rows=1, height=PLACEMENT.height)
    assert [cell.label for cell in grid[0]] == ["activation", "activation"]
    (top,) = raster(BUFFERS, PLACEMENT, AROUND.labels, columns=10, rows=13, height=PLACEMENT.height)[-1:]
    assert [cell.label for cell in top] == [""] * 4 + ["workspace"] * 2 + [""] * 4
