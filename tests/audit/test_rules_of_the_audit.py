"""Every rule finds what it means, where it stands, and leaves alone what only looks like it."""

import pytest

from memplan.audit.code import Code
from memplan.audit.inspect import CHECKS, edited, inspect_source
from memplan.audit.source import parse_python
from memplan.findings.records import PRIORITIES, Finding
from memplan.findings.rules import AUDIT, UNUSED
from tests.audit.cases import HEAD, NEGATIVE, POSITIVE


def issues(body: str, *rules: str, name: str = "train.py") -> tuple[Finding, ...]:
    source = parse_python((HEAD + body).encode(), name)
    assert source.tree is not None, source.unread
    return inspect_source(source, rules or tuple(AUDIT)).findings


def cases(table: dict[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    return [
        pytest.param(rule, body, id=f"{rule}-{number}") for rule in table for number, body in enumerate(table[rule])
    ]


@pytest.mark.parametrize(("rule", "body"), cases(POSITIVE))
def test_a_rule_finds_its_hazard_where_it_stands(rule: str, body: str) -> None:
    found = issues(body, rule)
    marked = [number for number, line in enumerate((HEAD + body).split("\n"), 1) if "# <-" in line]
    assert [(each.code, each.place.line) for each in found] == [(rule, marked[0])]


@pytest.mark.parametrize(("rule", "body"), cases(NEGATIVE))
def test_a_rule_leaves_alone_what_only_looks_like_its_hazard(rule: str, body: str) -> None:
    assert [each.message for each in issues(body, rule)] == []


def test_every_rule_has_a_check_and_three_cases_of_both_kinds() -> None:
    assert list(CHECKS) == sorted(AUDIT.keys() - {UNUSED})
    for rule in CHECKS:
        assert len(POSITIVE[rule]) >= 3, rule
        assert len(NEGATIVE[rule]) >= 3, rule


def test_rules_say_what_they_mean_and_what_to_do() -> None:
    for code, rule in AUDIT.items():
        assert rule.code == code
        assert rule.title
        assert not rule.title.endswith(".")
        assert rule.meaning.endswith(".")
        assert rule.remedy.endswith(".")
        assert rule.priority in PRIORITIES
        assert rule.confidence in PRIORITIES


@pytest.mark.parametrize(("rule", "body"), cases(POSITIVE))
def test_a_suggested_change_leaves_valid_code_without_that_hazard(rule: str, body: str) -> None:
    source = parse_python((HEAD + body).encode(), "train.py")
    assert source.tree is not None
    for hit in CHECKS[rule](Code(source.tree, list(source.lines))):
        if hit.edits:
            mended = parse_python(edited(source.lines, hit.edits).encode(), "train.py")
            assert mended.tree is not None, mended.unread
            assert inspect_source(mended, (rule,)).findings == ()


def test_a_suggested_change_is_a_diff_that_others_can_apply() -> None:
    [found] = issues(POSITIVE["MA001"][0], "MA001")
    assert found.diff.startswith("--- a/train.py\n+++ b/train.py\n@@ ")
    assert "+        total += loss.detach()  # <-\n" in found.diff


def test_unit_tests_may_leak() -> None:
    body = POSITIVE["MA011"][0]
    assert issues(body, "MA011")
    assert not issues(body, "MA011", name="tests/test_model.py")
    assert issues(POSITIVE["MA001"][0], "MA001", name="tests/test_model.py")


def test_a_finding_is_told_once() -> None:
    body = (
        "def attend(q, k, v, w):\n    scores = q @ k.transpose(-2, -1)\n    probs = torch.softmax(scores, -1)\n"
        "    return probs @ v + probs @ w\n"
    )
    assert [each.place.line for each in issues(body, "MA042")] == [HEAD.count("\n") + 3]
