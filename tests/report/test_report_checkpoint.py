"""The reports of ``checkpoint-plan``: figures come from the answer, lines keep their width, pictures are whole."""

import dataclasses
import json
from collections import Counter
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from memplan.plan.checkpoint.blocks.answer.records import CheckpointAnswer
from memplan.report.checkpoint import html as checkpoint_html
from memplan.report.checkpoint import json as checkpoint_json
from memplan.report.checkpoint import svg as checkpoint_svg
from memplan.report.checkpoint import text as checkpoint
from memplan.runtime.checkpoint.records import CheckpointPlan, Segment
from memplan.text import clean
from memplan.tracing.records import ModelPlace
from memplan.units import GIB, MIB, Bytes
from tests.contract.goldens import obey
from tests.report.example_checkpoint_plans import answer

SVG = "{http://www.w3.org/2000/svg}"


def _text(given: CheckpointAnswer, **options: object) -> str:
    return "\n".join(line.plain for line in checkpoint.render(given, **options))  # type: ignore[arg-type]


def test_neighbours_that_do_the_same_share_a_line() -> None:
    text = _text(answer())
    assert "transformer.h.0 … 6 (7)" in text
    assert "transformer.h.7 … 9 (3)" in text
    assert "transformer.h.10 … 11 (2)" in text
    assert "56.00 MiB" in text  # 7 blocks of 8 MiB
    assert "keeps addmm x3" in text


def test_times_of_the_lines_add_up_to_the_overhead() -> None:
    line = next(line for line in _text(answer()).splitlines() if "… 6 (7)" in line)
    assert line.endswith("+7.0 %")  # 7 of 10 equal parts of 10 %


def test_the_snippet_names_the_file_that_was_written() -> None:
    assert 'memplan.apply(model, "here.json")' in _text(answer(), plan_file="here.json")
    assert "memplan.apply" not in _text(answer())


def test_what_is_over_the_budget_says_by_how_much() -> None:
    over = dataclasses.replace(
        answer(), outcome="infeasible", budget_bytes=Bytes(20 * GIB), peak_after_bytes=Bytes(21 * GIB)
    )
    text = _text(over, quiet=True)
    assert "INFEASIBLE" in text
    assert "1.00 GiB over the budget of 20.00 GiB" in text


@pytest.mark.parametrize("outcome", ["optimal", "feasible", "infeasible", "timed_out"])
def test_every_outcome_renders_in_every_format(outcome: str) -> None:
    ended = dataclasses.replace(answer(), outcome=outcome, gap=None, least_feasible_bytes=None)
    assert _text(ended)
    obey("checkpoint-plan", json.loads(checkpoint_json.render(ended)))
    ET.fromstring(checkpoint_svg.render(ended))
    assert outcome.replace("_", " ").upper() in _Page.of(ended).text


def test_only_what_is_proved_is_claimed() -> None:
    bounded = dataclasses.replace(answer(), outcome="feasible", proved=False, gap=0.012341)
    lost = dataclasses.replace(answer(), outcome="infeasible", proved=False, gap=None, budget_bytes=Bytes(20 * GIB))
    assert "no plan of these options costs less and fits" in _text(answer())
    assert "at most 1.24 % of the step's time above the best plan of these options" in _text(bounded)
    assert "how far from the best is not known" in _text(dataclasses.replace(bounded, gap=None))
    assert "that there is none is not proved" in _text(lost)
    assert "no plan of these options fits, whatever the allocator loses" in _text(
        dataclasses.replace(lost, proved=True)
    )


def test_a_step_that_fits_needs_nothing_applied() -> None:
    idle = dataclasses.replace(answer(), plan=CheckpointPlan(blocks=()))
    text = _text(idle)
    assert "the step fits without a plan" in text
    assert "nothing to apply" in text
    assert "memplan.apply" not in _text(idle, plan_file="plan.json")


def test_where_modules_can_spare_nothing_a_target_is_sent_to_its_ops() -> None:
    idle = dataclasses.replace(answer(), plan=CheckpointPlan(blocks=()), budget_bytes=Bytes(GIB))
    assert "nothing to apply; --level op plans" in _text(idle)
    program = dataclasses.replace(idle, model_place=ModelPlace(expression="net", line="train.py:3"))
    assert "--level op" not in _text(program)


def test_segments_are_named_below_the_blocks() -> None:
    nested = dataclasses.replace(
        answer(), plan=CheckpointPlan(blocks=(), segments=(Segment(modules=("h.1", "h.2", "h.3")),))
    )
    assert "h.1 … 3 (3) run again as one" in _text(nested)
    assert "h.1 … 3 (3) run again as one" in _Page.of(nested).text


class _Page(HTMLParser):
    """Reads a page strictly: every element that has an end must end in turn."""

    VOID = frozenset({"meta"})

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: Counter[str] = Counter()
        self.addresses: list[str] = []
        self.text = ""

    @classmethod
    def of(cls, given: CheckpointAnswer) -> "_Page":
        page = cls()
        page.feed(checkpoint_html.render(given))
        page.close()
        assert page.open == []
        return page

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] += 1
        self.addresses += [value or "" for name, value in attrs if name in {"src", "href", "action"}]
        self.addresses += [name for name, _ in attrs if name.startswith("on")]
        self.open += [] if tag in self.VOID else [tag]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    page = _Page.of(answer())
    assert page.seen["svg"] == 1
    assert page.seen["circle"] == 21
    assert page.seen["tr"] == 1 + 3  # A heading, and the three runs of blocks.
    assert page.addresses == ["#content"]
    assert page.seen["script"] == 2  # Its JSON, and the frame's own.
    assert not page.seen["link"] + page.seen["img"] + page.seen["iframe"]
    assert checkpoint_html.render(answer()).count("url(") == 1  # A pattern of the style's own.
    for words in ("transformer.h.0 … 6 (7)", "56.00 MiB", "70.0", "OPTIMAL", "keeps addmm x3"):
        assert words in page.text


@given(name=st.text(min_size=1, max_size=60))
def test_names_from_outside_stay_words_on_the_page(name: str) -> None:
    rows = tuple(dataclasses.replace(row, module=f"{name}.{index}") for index, row in enumerate(answer().blocks))
    page = _Page.of(dataclasses.replace(answer(), target=name, blocks=rows, binding=name, assumptions=(name,)))
    assert page.seen == _Page.of(answer()).seen
    assert clean(f"{name} on a100-80g") in page.text


@given(width=st.integers(20, 140), name=st.text(min_size=1, max_size=60))
def test_no_line_is_wider_than_asked(width: int, name: str) -> None:
    rows = tuple(dataclasses.replace(row, module=f"{name}.{index}") for index, row in enumerate(answer().blocks))
    wide = dataclasses.replace(answer(), target=name, blocks=rows, binding=name)
    for line in checkpoint.render(wide, width=width, explain=True):
        assert cell_len(line.plain) <= max(width, 60)


def test_json_carries_the_contract_and_obeys_its_schema() -> None:
    document = json.loads(checkpoint_json.render(answer()))
    obey("checkpoint-plan", document)
    assert document["result"] == "optimal"
    assert document["peak_after_bytes"] == 23 * GIB
    assert sum(row["kept_bytes"] for row in document["blocks"]) == (7 * 8 + 3 * 100 + 2 * 412) * MIB


def test_the_schema_refuses_a_document_without_its_result() -> None:
    document = json.loads(checkpoint_json.render(answer()))
    del document["result"]
    with pytest.raises(jsonschema.ValidationError):
        obey("checkpoint-plan", document)


def test_the_picture_has_a_dot_for_every_point_and_one_for_the_plan() -> None:
    drawn = ET.fromstring(checkpoint_svg.render(answer()))
    kinds = [circle.get("class") for circle in drawn.iter(f"{SVG}circle")]
    assert kinds.count("point") == 20  # The last one is the unplanned step.
    assert kinds.count("chosen") == 1


@given(st.text(max_size=40))
def test_names_from_outside_cannot_break_the_picture(target: str) -> None:
    ET.fromstring(checkpoint_svg.render(dataclasses.replace(answer(), target=target)))
