"""Comments that excuse: only what they name, where it stands, and never without a use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.audit.inspect import inspect_source
from memplan.audit.records import FileAudit, Hit
from memplan.audit.source import parse_python
from memplan.audit.suppress import codes_of, excuse
from memplan.findings.rules import AUDIT, UNUSED

LEAK = "for x in loader:\n    loss = F.mse_loss(model(x), x)\n    loss.backward()\n    total += loss{}\n"
HEAD = "import torch\nimport torch.nn.functional as F\n"
CODES = st.sampled_from([*AUDIT, "MA999"])


def audited(text: str, *rules: str) -> FileAudit:
    return inspect_source(parse_python((HEAD + text).encode(), "train.py"), rules or tuple(AUDIT))


@pytest.mark.parametrize(
    "comment",
    ["# memplan: ignore[MA001]", "# memplan:ignore[MA002, MA001]", "# noqa: MA001", "# noqa: E501, MA001", "# noqa",
     "# why  # MEMPLAN: IGNORE[ma001]"],
)  # fmt: skip
def test_a_comment_excuses_the_line_that_it_stands_on(comment: str) -> None:
    found = audited(LEAK.format(f"  {comment}"), "MA001")
    assert found.findings == ()
    assert found.suppressed == 1


@pytest.mark.parametrize(
    "comment", ["# memplan: ignore[MA002]", "# noqa: E501", "# ignore[MA001]", "# memplan: ignore"]
)
def test_another_comment_excuses_nothing(comment: str) -> None:
    assert [each.code for each in audited(LEAK.format(f"  {comment}"), "MA001").findings] == ["MA001"]


def test_a_comment_in_a_string_is_none() -> None:
    text = LEAK.format("; name = '# noqa: MA001'")
    assert [each.code for each in audited(text).findings] == ["MA001"]


def test_any_line_of_an_expression_will_do() -> None:
    text = "state = torch.load(\n    model_path,  # memplan: ignore[MA071]\n)\n"
    assert audited(text).findings == ()


def test_what_excuses_nothing_is_told_unless_its_rule_is_not_looked_for() -> None:
    text = "x = 1  # memplan: ignore[MA001]\ny = 2  # noqa: MA777, E501\n"
    assert [(each.code, each.place.line) for each in audited(text).findings] == [(UNUSED, 3), (UNUSED, 4)]
    assert [each.place.line for each in audited(text, "MA002", UNUSED).findings] == [4]
    assert audited(text, "MA001").findings == ()


def test_a_bare_noqa_is_for_other_tools_too_and_never_told() -> None:
    assert audited("x = 1  # noqa\n").findings == ()


def test_a_comment_can_excuse_its_own_idleness() -> None:
    assert audited("x = 1  # memplan: ignore[MA001, MA099]\n").findings == ()


HITS = st.builds(
    lambda code, line, more: Hit(code=code, line=line, column=0, end_line=line + more, end_column=1, message="m"),
    st.sampled_from([code for code in AUDIT if code != UNUSED]), st.integers(1, 9), st.integers(0, 3),
)  # fmt: skip
COMMENTS = st.dictionaries(
    st.integers(1, 12),
    st.lists(CODES, min_size=1, max_size=3).map(lambda codes: f"# memplan: ignore[{','.join(codes)}]"),
    max_size=4,
)


@given(st.lists(HITS, max_size=6), COMMENTS)
def test_laws_of_excuses(hits: list[Hit], comments: dict[int, str]) -> None:
    found = excuse(hits, comments, tuple(AUDIT))
    kept = [each for each in found.hits if each.code != UNUSED]
    # Nothing is made up, nothing is lost.
    assert len(kept) + found.suppressed == len(hits)
    assert all(each in hits for each in kept)
    # What is kept is named by no comment on its lines; what went is named by one.
    for each in hits:
        named = any(each.code in codes_of(comments.get(line, "")) for line in range(each.line, each.end_line + 1))
        assert (each in kept) is not named
    # Taking out every comment that is told changes nothing.
    idle = {
        (each.line, code) for each in found.hits if each.code == UNUSED for code in AUDIT if f" {code}" in each.message
    }
    trimmed = {
        line: f"# memplan: ignore[{','.join(code for code in codes_of(text) if (line, code) not in idle)}]"
        for line, text in comments.items()
    }
    assert [each for each in excuse(hits, trimmed, tuple(AUDIT)).hits if each.code != UNUSED] == kept


@given(st.lists(HITS, max_size=6))
def test_without_comments_all_stands(hits: list[Hit]) -> None:
    found = excuse(hits, {}, tuple(AUDIT))
    assert sorted(map(repr, found.hits)) == sorted(map(repr, hits))
    assert found.suppressed == 0
