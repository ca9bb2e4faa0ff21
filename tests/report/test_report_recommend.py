"""The reports of ``recommend``: figures come from the answer, lines keep their width, JSON obeys its schema."""

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from rich.cells import cell_len

from memplan.job.spec import JobSpec, ScriptTarget
from memplan.plan.recommend.records import UNREACHED, Ending, Recommendation, Rejected, Remedy
from memplan.report.recommend import html as recommend_html
from memplan.report.recommend import json as recommend_json
from memplan.report.recommend import svg as recommend_svg
from memplan.report.recommend import text as recommend
from memplan.report.recommend.chart import front_lines
from memplan.report.recommend.lost import lost_once
from memplan.units import GIB, Bytes, format_bytes
from tests.contract.goldens import obey
from tests.report.example_recommendations import JOB, LOST, answer, candidate, evaluated
from tests.report.html.reader import Reader


@pytest.mark.parametrize("width", [40, 60, 80, 120, 300])
def test_lines_keep_their_width(width: int) -> None:
    lines = recommend.render(answer(), width=width, explain=True)
    assert max(cell_len(line.plain) for line in lines) <= max(width, 60)


def test_every_row_stands_with_its_figures() -> None:
    text = "\n".join(line.plain for line in recommend.render(answer(), width=100))
    for row in answer().rows:
        assert row.candidate.words in text
        assert format_bytes(row.device_bytes) in text
        assert f"{row.samples_per_second:.2f}" in text
    assert "there is no linear layer" in text
    assert LOST in text
    assert "a single change that makes it fit: --checkpoint full (+20.0 % time)" in text


def test_stages_of_a_pipeline_stand_with_their_peaks() -> None:
    given = answer()
    row = replace(given.rows[0], stage_bytes=(Bytes(20 * GIB), Bytes(11 * GIB)))
    text = "\n".join(line.plain for line in recommend.render(replace(given, rows=(row, *given.rows[1:])), width=100))
    assert "stages: 20.00 GiB, 11.00 GiB" in text
    assert "stages" not in "\n".join(line.plain for line in recommend.render(given, width=100))


@pytest.mark.parametrize(("varied", "unit"), [({}, "batches"), ({"batch_size": "--batch-size"}, "samples")])
def test_what_nobody_counts_in_samples_is_told_in_batches(varied: dict[str, str], unit: str) -> None:
    spec = JobSpec(target=ScriptTarget(path=Path("train.py"), varied=varied))
    rows = tuple(replace(each, candidate=replace(each.candidate, spec=spec)) for each in answer().rows)
    given = replace(answer(), rows=rows, pareto=rows, baseline=rows[0])
    text = "\n".join(line.plain for line in recommend.render(given, width=100))
    other = "samples" if unit == "batches" else "batches"
    for told in (text, recommend_html.render(given), recommend_svg.render(given)):
        assert f"{unit}/s" in told
        assert f"{other}/s" not in told
        assert f"{other} per" not in told
    assert f"8 {unit} per optimizer step" in text


def test_the_job_is_told_as_estimate_tells_it() -> None:
    text = "\n".join(line.plain for line in recommend.render(answer(), width=100))
    assert "124.00 M parameters · fp32 · batch 8" in text
    assert "data_dependent" not in text


def test_of_a_job_that_was_not_traced_no_parameters_are_told() -> None:
    unknown = replace(answer(), options={}, provenance={}, parameters=0, trainable_parameters=0, traces=0)
    assert not [line for line in recommend.render(unknown, width=100) if "parameters" in line.plain]


def test_where_nothing_fits_no_point_is_the_best() -> None:
    assert [line for line in front_lines(answer(), 100) if "best" in line.plain]
    nothing = replace(answer(), rows=())
    assert not [line for line in front_lines(nothing, 100) if "best" in line.plain]


def test_what_was_not_reached_is_one_sentence() -> None:
    late = [replace(answer().what_ifs[1], candidate=candidate(f"--option {name}"), reason=UNREACHED) for name in "abc"]
    text = "\n".join(line.plain for line in recommend.render(replace(answer(), what_ifs=tuple(late)), width=120))
    assert "not reached in the time for single changes: --option a, --option b, --option c" in text
    assert UNREACHED not in text


def test_a_split_comes_with_what_it_takes_for_granted() -> None:
    smaller = replace(candidate("--batch-size 4 --grad-accum 2"), spec=replace(JOB, batch_size=4, grad_accum=2))
    rows = (replace(answer().rows[0], candidate=smaller),)
    said = [
        " ".join(word for line in recommend.render(each) for word in line.plain.split())
        for each in (answer(), replace(answer(), rows=rows))
    ]
    assert ["mean over samples" in text for text in said] == [False, True]


def test_that_nothing_fits_is_said() -> None:
    proof = replace(answer().proof, ending="nothing_fits", gap=None, least_bytes=Bytes(46 * GIB))
    nothing = replace(answer(), rows=(), cheapest=None, proof=proof)
    said = "✗ NOTHING FITS (proved)  least peak of the whole space is at least 46.00 GiB"
    assert recommend.render(nothing, quiet=True)[0].plain == said
    reached = replace(nothing, proof=replace(proof, is_least_reached=True))
    assert recommend.render(reached, quiet=True)[0].plain == said.replace("at least ", "")


@pytest.mark.parametrize(
    ("ending", "gap", "said"),
    [
        ("best", 0.0, "✓ BEST (proved)  20.00 GiB"),
        ("best_of_proved", 0.0301, "3 of 12, at most 3.1 % from the best"),
        ("best_of_proved", 690.85, "✓ BEST OF WHAT WAS PROVED  20.00 GiB  6.67 samples/s\n  3 of 12\n"),
        ("best_of_proved", None, "✓ BEST OF WHAT WAS PROVED  20.00 GiB  6.67 samples/s\n  3 of 12\n"),
    ],
)
def test_no_more_is_said_than_is_proved(ending: Ending, gap: float | None, said: str) -> None:
    cut = replace(answer(), ended="budget", proof=replace(answer().proof, ending=ending, gap=gap, proved=3))
    assert said in "\n".join(line.plain for line in recommend.render(cut, quiet=True))


def test_a_search_that_was_cut_never_says_that_nothing_fits() -> None:
    proof = replace(answer().proof, ending="not_found", gap=None, proved=3)
    next_way = candidate("--checkpoint full")
    cut = replace(answer(), ended="budget", rows=(), cheapest=None, proof=proof, untraced=next_way)
    text = "\n".join(line.plain for line in recommend.render(cut))
    assert "? NOT FOUND  in 3 of 12" in text
    assert "would be traced next: --checkpoint full" in text
    assert "NOTHING FITS" not in text.upper()
    assert "not found in 3 of 12" in Reader(recommend_html.render(cut)).words.lower()


def test_fewest_changes_are_said_only_where_fewer_are_proved_not_to_do() -> None:
    cheapest = answer().cheapest
    assert cheapest is not None
    two = replace(cheapest, candidate=candidate("--checkpoint full", "--loss-chunks 8"))
    for least, is_said in ((1, False), (2, True)):
        proof = replace(answer().proof, least_changes=least)
        text = "\n".join(recommend.remarks(replace(answer(), cheapest=two, proof=proof)))
        assert ("fewest changes that make it fit" in text) == is_said


def test_what_more_would_have_to_be_allowed_stands_at_the_top() -> None:
    remedy = Remedy(allow=("precision",), evaluated=evaluated(12.0, 0.5, "--precision bf16", "--checkpoint full"))
    nothing = replace(answer(), rows=(), remedies=(remedy,))
    words = " ".join(word for line in recommend.render(nothing, quiet=True) for word in line.plain.split())
    assert "fits with --allow precision: --precision bf16 --checkpoint full (12.00 GiB, 16.00 samples/s" in words
    document = json.loads(recommend_json.render(nothing))
    obey("recommend", document)
    assert [each["allow"] for each in document["remedies"]] == [["precision"]]


def test_a_step_of_one_kind_of_time_needs_no_breakdown() -> None:
    assert not [words for words in recommend.remarks(answer()) if "of the step" in words]
    best = answer().rows[0]
    waiting = replace(best, time=replace(best.time, compute=0.6, launch=0.6))
    said = [words for words in recommend.remarks(replace(answer(), rows=(waiting,))) if "of the step" in words]
    assert said == ["of the step: kernels 50 %, waiting for the CPU 50 %"]


@pytest.mark.parametrize("given", [answer(), replace(answer(), rows=(), baseline=None, cheapest=None, critical=None)])
def test_json_obeys_its_schema(given: Recommendation) -> None:
    document = json.loads(recommend_json.render(given))
    obey("recommend", document)
    assert [row["device_bytes"] for row in document["rows"]] == [row.device_bytes for row in given.rows]


def test_an_unknown_kind_of_result_is_no_json_report() -> None:
    document = json.loads(recommend_json.render(answer())) | {"result": "perhaps"}
    with pytest.raises(jsonschema.ValidationError):
        obey("recommend", document)


def test_the_picture_has_a_dot_for_every_point() -> None:
    root = ET.fromstring(recommend_svg.render(answer()))
    assert len(root.findall(".//{http://www.w3.org/2000/svg}circle")) == 3


def test_the_page_closes_what_it_opens() -> None:
    open_tags: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            if tag not in ("meta", "line", "rect", "circle", "polyline"):
                open_tags.append(tag)

        def handle_endtag(self, tag: str) -> None:
            if tag not in ("line", "rect", "circle", "polyline"):
                assert open_tags.pop() == tag

    Reader().feed(recommend_html.render(answer()))
    assert not open_tags


@pytest.mark.parametrize(("precision", "is_told"), [("bf16-mixed", True), ("fp32", False)])
def test_that_a_card_emulates_bfloat16_stands_below_the_best(precision: str, is_told: bool) -> None:
    best = answer().rows[0]
    spec = replace(best.candidate.spec, precision=precision)  # type: ignore[arg-type]
    rows = (replace(best, candidate=replace(best.candidate, spec=spec)),)
    phrase = "bfloat16 on a GPU whose cores have none"
    found = replace(answer(), rows=rows, not_modelled=(phrase,))
    text = "\n".join(line.plain for line in recommend.verdict_lines(found, 100))
    assert (phrase in text) == is_told


def failed(*changes: str, reason: str = "boom") -> Rejected:
    return Rejected(candidate=candidate(*changes), reason=reason, traced=False)


@pytest.mark.parametrize(
    ("rejected", "told"),
    [
        # A smaller way that fails alike tells of all that have it.
        ((failed("a", "b"), failed("a", "b", "c"), failed("a", "b", "d")), [("a b", "boom")]),
        # What all have in common fails, where nothing that ran has it.
        ((failed("a", "b", "c"), failed("a", "b", "d")), [("a b", "boom")]),
        ((failed("a", "c"), failed("b", "d")), [("a c", "boom"), ("b d", "boom")]),
        ((failed("a", "b"), failed("a", "b", "c", reason="bang")), [("a b", "boom"), ("a b c", "bang")]),
        # This one ran in a smaller way, so that it is not what fails.
        ((failed("--checkpoint full", "c"), failed("--checkpoint full", "d")),
         [("--checkpoint full c", "boom"), ("--checkpoint full d", "boom")]),
        # The single change is told where single changes are.
        ((failed("--lora r=16", "c", reason="there is no linear layer"),), []),
    ],
)  # fmt: skip
def test_what_fails_together_is_told_once(rejected: tuple[Rejected, ...], told: list[tuple[str, str]]) -> None:
    assert lost_once(replace(answer(), rejected=rejected)) == told
