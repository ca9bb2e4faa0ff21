"""The first line of summary, comment and page: what grew, by how much and why."""

from dataclasses import replace

from memplan.gate.compare import compare
from memplan.project.records import Policy
from memplan.report.gate.comment import render as comment
from memplan.report.gate.headline import headline
from memplan.report.gate.markdown import render as markdown
from memplan.report.html.gate import render as page
from memplan.units import GIB
from tests.gate.test_gate_reports import RESULT, row
from tests.report.example_estimates import FITS, OOM

GREW = (
    "llama-8b-sft on h100-80g grew by 12.00 GiB (+17.0 %), most in model.layers.*.mlp x12 at model.py:41 (+12.00 GiB)"
)


def test_it_says_what_grew_by_how_much_and_why() -> None:
    assert headline(RESULT) == f"3 of 6 failed, 1 unknown, 1 only told: {GREW}"
    for text in (markdown(RESULT), comment(RESULT)):
        _, first, *_ = text.splitlines()
        assert GREW.replace("*", "\\*") in first.replace("\\_", "_")
    assert f"<h1>3 of 6 failed, 1 unknown, 1 only told: {GREW}</h1>" in page(RESULT).replace("&gt;", ">")


def test_growth_that_no_module_has_is_named_by_its_category() -> None:
    breakdown = {**FITS.breakdown, "fragmentation": FITS.breakdown["fragmentation"] + GIB}
    peak = replace(FITS.peak, device_bytes=FITS.peak.device_bytes + GIB)
    more = replace(FITS, peak=peak, breakdown=breakdown)
    grew = replace(RESULT, rows=(row("a", more, Policy(), comparison=compare(FITS, more), has_baseline=True),))
    assert headline(grew).startswith("passed: a on h100-80g grew by 1.00 GiB (+")
    assert headline(grew).endswith("most in allocator slack (+1.00 GiB)")


def test_without_growth_it_is_what_fails_and_else_the_count() -> None:
    assert headline(replace(RESULT, rows=())) == "no jobs"
    assert headline(replace(RESULT, rows=(row("a", OOM, Policy()),))).startswith("1 of 1 failed: a on ")
    same = row("a", FITS, Policy(), comparison=compare(FITS, FITS), has_baseline=True)
    assert headline(replace(RESULT, rows=(same, same))) == "all 2 passed"
