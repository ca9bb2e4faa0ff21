"""The table of findings."""

from memplan.estimate.records import Verdict
from memplan.report.codes import RULES, rule_of


def test_every_verdict_but_fits_has_its_own_stable_code() -> None:
    codes = {verdict: rule.code if (rule := rule_of(verdict)) else None for verdict in Verdict}
    assert codes == {
        Verdict.FITS: None,
        Verdict.OOM: "MP001",
        Verdict.TIGHT: "MP002",
        Verdict.UNKNOWN: "MP003",
    }


def test_the_table_is_keyed_by_code_and_says_what_to_do() -> None:
    for code, rule in RULES.items():
        assert rule.code == code
        assert rule.meaning.endswith(".")
        assert rule.remedy.endswith(".")
