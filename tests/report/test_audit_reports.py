"""The audit's formats: valid by others' schemas and parsers, stable, and inert whatever names and code say."""

import json
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.cells import cell_len
from syrupy.assertion import SnapshotAssertion

from memplan.audit.records import Audit
from memplan.cli.audit import RENDERERS
from memplan.findings.formats import FORMATS as FINDING_FORMATS
from memplan.findings.records import Finding, Place
from memplan.findings.rules import AUDIT
from memplan.report.audit import text as audit
from memplan.report.audit.findings import findings_of
from memplan.report.draw.layout import bounded
from memplan.text import clean
from tests.contract.goldens import obey
from tests.report.example_audit import EMPTY, OUTSIDE, example
from tests.report.formats import CODE_QUALITY, commands, sarif_schema

EXAMPLE = example()
FEW = settings(max_examples=30, deadline=None)
FORMATS = ("markdown", "github", "gitlab", "sarif", "json")
NASTY = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20) | st.sampled_from(
    [
        "a|b",
        "`x`",
        "<b>",
        "@team #12",
        "::error::",
        "%0A",
        "[a](1) {0}",
        "a\nb",
        "\x1b[31m",
        "…" * 90,
        "C:/x.py",
        "/abs/x.py",
    ]
)


def renamings() -> st.SearchStrategy[Mapping[str, str]]:
    return st.lists(NASTY, min_size=len(OUTSIDE), max_size=len(OUTSIDE), unique=True).map(
        lambda names: dict(zip(OUTSIDE, names, strict=True))
    )


def rendered(name: str, result: Audit) -> str:
    content = findings_of(result) if name in FINDING_FORMATS else result
    text: str = import_module(RENDERERS[name]).render(content)
    return text


def plain(result: Audit, **options: object) -> str:
    return "\n".join(line.plain for line in audit.render(result, **options))  # type: ignore[arg-type]


def check(name: str, text: str) -> None:
    match name:
        case "sarif":
            sarif_schema().validate(json.loads(text))
        case "gitlab":
            jsonschema.validate(json.loads(text), CODE_QUALITY)
        case "json":
            obey("audit", json.loads(text))
        case "github":
            commands(text)
        case "markdown":
            MarkdownIt("commonmark").enable("table").parse(text)


def test_final_text(snapshot: SnapshotAssertion) -> None:
    assert plain(EXAMPLE, diffs=True) == snapshot


def test_final_text_in_short(snapshot: SnapshotAssertion) -> None:
    assert plain(EXAMPLE, quiet=True) == snapshot


@pytest.mark.parametrize("name", ["markdown", "github"])
def test_final_text_of(name: str, snapshot: SnapshotAssertion) -> None:
    assert rendered(name, EXAMPLE) == snapshot


@pytest.mark.parametrize("result", [EXAMPLE, EMPTY], ids=["example", "empty"])
@pytest.mark.parametrize("name", FORMATS)
def test_it_is_valid(name: str, result: Audit) -> None:
    check(name, rendered(name, result))


@FEW
@given(renamings())
def test_whatever_things_are_called_it_is_valid_and_inert(names: Mapping[str, str]) -> None:
    hostile = example(names.__getitem__)
    for name in FORMATS:
        check(name, rendered(name, hostile))
    tame_commands, found = commands(rendered("github", EXAMPLE)), commands(rendered("github", hostile))
    assert [command for command, _, _ in found] == [command for command, _, _ in tame_commands]
    assert {properties["file"] for _, properties, _ in found} == {clean(names[each]) for each in OUTSIDE[:3]}

    def cells(text: str) -> list[int]:
        tokens = MarkdownIt("commonmark").enable("table").parse(text)
        return [
            sum(token.type == kind for token in tokens) for kind in ("table_open", "tr_open", "td_open", "heading_open")
        ]

    assert cells(rendered("markdown", hostile)) == cells(rendered("markdown", EXAMPLE))


@FEW
@given(renamings(), st.integers(20, 200), st.booleans())
def test_no_line_is_wider_than_asked_or_holds_a_line_break(names: Mapping[str, str], width: int, quiet: bool) -> None:
    lines = audit.render(example(names.__getitem__), width=width, quiet=quiet, diffs=True)
    for line in lines:
        assert cell_len(line.plain) <= bounded(width)
        assert "\n" not in line.plain
        assert "\x1b" not in line.plain
    assert lines[-1].plain.startswith(("✗ 5 findings: 3 high", "✗ 5 findings"))


def test_the_worst_come_first() -> None:
    levels = [each.severity for each in findings_of(EXAMPLE).found]
    assert levels == sorted(levels, key=["error", "warning", "note"].index)


def test_the_answer_of_nothing() -> None:
    assert plain(EMPTY).splitlines()[-1].split() == ["✓", "no", "memory", "hazards", "found", "0.0", "s"]


def further_down(place: Place) -> Place:
    return replace(place, line=place.line + 9, end_line=(place.end_line or place.line) + 9)


def test_identities_are_unique_and_last_while_the_code_around_moves() -> None:
    before = [each.identity for each in findings_of(EXAMPLE).found]
    assert len(set(before)) == len(before)
    moved = replace(
        EXAMPLE,
        files=tuple(
            replace(
                file,
                findings=tuple(replace(each, place=further_down(each.place)) for each in file.findings),
            )
            for file in EXAMPLE.files
        ),
    )
    assert [each.identity for each in findings_of(moved).found] == before


def test_sarif_names_rules_places_and_what_was_not_read() -> None:
    (run,) = json.loads(rendered("sarif", EXAMPLE))["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == list(AUDIT)
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    first = run["results"][0]["locations"][0]["physicalLocation"]
    assert first["artifactLocation"] == {"uri": "train.py", "uriBaseId": "%SRCROOT%"}
    assert first["region"] == {"startLine": 41, "startColumn": 9, "endLine": 41, "endColumn": 22}
    (note,) = run["invocations"][0]["toolExecutionNotifications"]
    assert note["message"]["text"] == "notes.ipynb:cell 2:1: syntax error: invalid syntax"


def test_github_shows_ten_and_says_how_many_more() -> None:
    file = EXAMPLE.files[2]

    def at(line: int) -> Finding:
        first = file.findings[0]
        return replace(first, place=replace(first.place, line=line))

    many = replace(file, findings=tuple(at(line) for line in range(1, 31)))
    found = commands(rendered("github", replace(EXAMPLE, files=(many,))))
    assert len(found) == 10
    assert found[-1][2].startswith("21 more findings (MA001)")
