"""The table of findings."""

from memplan.findings.rules import RULES
from memplan.measure.records import Verdict


def test_every_verdict_but_fits_has_its_own_stable_code() -> None:
    assert {verdict: verdict.code for verdict in Verdict} == {
        Verdict.FITS: None,
        Verdict.OOM: "MP001",
        Verdict.TIGHT: "MP002",
        Verdict.UNKNOWN: "MP003",
    }


def test_every_code_of_a_verdict_is_explained() -> None:
    assert {verdict.code for verdict in Verdict} - {None} <= RULES.keys()


def test_the_table_is_keyed_by_code_and_says_what_to_do() -> None:
    for code, rule in RULES.items():
        assert rule.code == code
        assert rule.meaning.endswith(".")
        assert rule.remedy.endswith(".")
