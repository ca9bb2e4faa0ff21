"""The gate's Markdown as a reader's page has it, by a parser that is not ours: tables, structure, limits."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import example as with_example
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token
from syrupy.assertion import SnapshotAssertion

from memplan.findings.records import Place
from memplan.gate.records import GateResult
from memplan.report import markdown
from memplan.report.gate import comment as gate_comment
from memplan.report.gate import markdown as gate_markdown
from memplan.text import clean
from tests.gate.results import RESULTS
from tests.report.example_gate import FRAGMENTS, HOSTILE, OUTSIDE, example, renamings

PARSER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
EXAMPLE = example()
EMPTY = GateResult(project=Path("memplan.toml"), rows=(), baseline=None)
FEW = settings(max_examples=30)
COMMENT = "<!-- -->"
EVERYTHING = dict(zip(OUTSIDE, ["".join(FRAGMENTS) + str(number) for number in range(len(OUTSIDE))], strict=True))
"""Each text: all that means something to somebody."""
FIRST = {text: f"1. {text}" for text in OUTSIDE}
"""Each text: a list, if it stood first on its line."""


def test_final_text(snapshot: SnapshotAssertion) -> None:
    assert gate_markdown.render(EXAMPLE) == snapshot


def pieces(tokens: list[Token]) -> Iterator[tuple[str, str]]:
    """Kind and text of what is on the page: code spelt in either way alike, without the comments that part words."""
    spelt: list[str] | None = None
    for token in tokens:
        match token.type:
            case "html_inline" if token.content == "<code>":
                spelt = []
            case "html_inline" if token.content == "</code>":
                yield "code", "".join(spelt or [])
                spelt = None
            case "html_inline" if token.content in (COMMENT, "<span>", "</span>"):
                pass
            case "code_inline":
                yield "code", token.content
            case "inline":
                yield from joined(pieces(token.children or []))
            case _ if spelt is not None:
                spelt.append(token.content)
            case _:
                yield token.type, token.content


def joined(found: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Text beside text together."""
    text = ""
    for kind, content in found:
        if kind == "text":
            text += content
            continue
        if text:
            yield "text", text
        text = ""
        yield kind, content
    if text:
        yield "text", text


class Elements(HTMLParser):
    """Elements of raw HTML, and the text of its code."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list) -> None:
        self.found.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.found.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        if self.found and self.found[-1] == "code":
            self.texts.append(data)


def structure(text: str) -> list[object]:
    """What a page is made of, without its words."""
    return [
        Elements(content).found if kind == "html_block" and not content.startswith("<!--") else kind
        for kind, content in pieces(PARSER.parse(text))
    ]


def tables(text: str) -> list[list[tuple[str, ...]]]:
    """Cells of every table, as words."""
    found: list[list[tuple[str, ...]]] = []
    cells: list[str] = []
    for kind, content in pieces(PARSER.parse(text)):
        match kind:
            case "table_open":
                found.append([])
            case "tr_open":
                cells = []
            case "tr_close":
                found[-1].append(tuple(cells))
            case "th_open" | "td_open":
                cells.append("")
            case "text" | "code" if cells:
                cells[-1] += content
    return found


def test_tables_say_the_figures() -> None:
    first, growth, *_ = tables(gate_markdown.render(EXAMPLE))
    assert first == [
        ("Verdict", "Job", "GPU", "Peak", "Limit", "Since the baseline"),
        ("❌ failed", "llama-8b-sft", "h100-80g", "82.49 GiB", "71.71 GiB", "+12.00 GiB (+17.0 %)"),
        ("❌ failed", "llama-8b-sft", "a100-40g", "82.49 GiB", "39.02 GiB", "+12.00 GiB (+17.0 %)"),
        ("❌ failed", "llama-70b", "a100-40g", "70.49 GiB", "39.02 GiB", ""),
        ("❓ unknown", "custom-op", "h100-80g", "no figure", "78.70 GiB", ""),
        ("⚠️ warning", "experiment", "a100-40g", "70.49 GiB", "39.02 GiB", ""),
        ("✅ passed", "bert", "h100-80g", "70.49 GiB", "75.00 GiB", ""),
    ]
    assert growth[1:] == [
        ("+11.00 GiB", "activations", "model.layers.0.mlp", "0 B", "11.00 GiB", "train/model.py:41"),
        ("+1.00 GiB", "parameters", "lm_head", "0 B", "1.00 GiB", ""),
    ]


@FEW
@given(renamings())
@with_example(EVERYTHING)
@with_example(FIRST)
def test_nothing_in_a_name_is_markup(names: Mapping[str, str]) -> None:
    text = gate_markdown.render(example(names.__getitem__))
    assert structure(text) == structure(gate_markdown.render(EXAMPLE))
    assert text.startswith(gate_markdown.MARKER + "\n")


@FEW
@given(renamings())
def test_cells_keep_names_as_they_are(names: Mapping[str, str]) -> None:
    cells = tables(gate_markdown.render(example(names.__getitem__)))[0][1:]
    order = [("llama-8b-sft", "h100-80g"), ("llama-8b-sft", "a100-40g"), ("llama-70b", "a100-40g"),
             ("custom-op", "h100-80g"), ("experiment", "a100-40g"), ("bert", "h100-80g")]  # fmt: skip
    shown = [(job.strip(), gpu.strip()) for _, job, gpu, *_ in cells]
    assert shown == [(clean(names[job]).strip(), clean(names[gpu]).strip()) for job, gpu in order]


@FEW
@given(HOSTILE)
@with_example("".join(FRAGMENTS))
def test_a_sentence_is_text_and_mentions_nobody(text: str) -> None:
    (inline,) = [token for token in PARSER.parse("x " + markdown.sentence(text)) if token.type == "inline"]
    shown = [child.content for child in inline.children or [] if child.type == "text"]
    assert {kind for kind, _ in pieces([inline])} == {"text"}
    assert "".join(shown) == "x " + clean(" ".join(text.split()))
    for part in shown:
        assert not re.search(r"@\w|#\d|\bGH-\d|:[\w+-]+:|://|\bwww\.", part)
        assert "$" not in part or part == "$"


@given(HOSTILE)
def test_a_name_on_a_summary_s_line_is_text(text: str) -> None:
    found = Elements(f"<summary>{markdown.html_code(text)}</summary>")
    assert found.found == ["summary", "code", "/code", "/summary"]
    assert "".join(found.texts) == clean(text)


@settings(max_examples=30)
@given(RESULTS)
def test_every_row_has_its_line_and_no_control_character_is_left(result: GateResult) -> None:
    text = gate_markdown.render(result)
    assert len(tables(text)[0]) == 1 + len(result.rows)
    assert not any(char in text for char in "\x00\x1b\r\u2028\u202e")


def many(count: int, message: str = "peak is over") -> GateResult:
    """Jobs of which each has something to say, half of them passing."""
    failed, passed = EXAMPLE.rows[1], EXAMPLE.rows[0]
    finding = replace(failed.findings[0], message=message, place=Place(file="train/model.py", line=3))
    rows = [
        replace(row, job=f"job-{index}", findings=(replace(finding, severity=level),))
        for index in range(count // 2)
        for row, level in ((passed, "note"), (failed, "error"))
    ]
    return replace(EXAMPLE, rows=tuple(rows))


CUT = re.compile(r"(\d+) of (\d+) (rows|details)")


@pytest.mark.parametrize(
    ("count", "limit", "message"),
    [
        (20, 8000, "peak is over"),
        (60, 8000, "層" * 900),
        (200, 65_536, "peak is over"),
        (700, 65_536, "peak is over"),
        (1200, 1 << 20, "peak is over " * 40),
    ],
)
def test_a_long_report_is_cut_below_the_limit_and_says_so(count: int, limit: int, message: str) -> None:
    result = many(count, message)
    text = gate_markdown.render(result, limit=limit)
    assert len(text.encode()) < limit
    left = {what: (int(missing), int(total)) for missing, total, what in CUT.findall(text)}
    missing_rows, total = left.get("rows", (0, count))
    assert len(tables(text)[0]) - 1 == count - missing_rows
    assert total == count
    missing_details, details = left["details"]
    headings = text.count("\n#### ") + text.count("<details><summary><code>") + text.count("\n- note: ")
    assert (headings, details) == (details - missing_details, count + 1)
    assert "job-0" in text
    # A block is whole or not there.
    assert text.count("<details>") == text.count("</details>")


def test_what_fails_is_the_last_to_be_cut_and_rows_leave_room_for_details() -> None:
    text = gate_markdown.render(many(1000), limit=65_536)
    assert {verdict for verdict, *_ in tables(text)[0][1:]} == {"❌ failed"}
    assert text.count("\n#### ") > 10


def test_a_report_that_has_room_is_whole() -> None:
    assert CUT.search(gate_markdown.render(EXAMPLE)) is None
    assert gate_comment.render(EXAMPLE) == gate_markdown.render(EXAMPLE)


def test_a_comment_is_shorter_than_a_summary() -> None:
    result = many(400)
    assert len(gate_comment.render(result).encode()) < 65_536 < len(gate_markdown.render(result).encode()) < 1 << 20


def test_without_jobs() -> None:
    assert tables(gate_markdown.render(EMPTY)) == [[("Verdict", "Job", "GPU", "Peak", "Limit", "Since the baseline")]]


@given(st.text(max_size=40))
def test_code_is_one_piece(text: str) -> None:
    found = list(pieces(PARSER.parse(f"x {markdown.code(text)} y")))
    assert [kind for kind, _ in found if kind == "code"] == ["code"] * bool(clean(text))
