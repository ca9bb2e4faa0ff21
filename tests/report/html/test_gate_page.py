"""The page of a gate: every row, every finding, what grew, and the figures behind them."""

import json
from dataclasses import replace
from pathlib import Path

from memplan.gate.records import GateResult
from memplan.measure.records import RecordedEstimate
from memplan.report.gate.headline import headline
from memplan.report.gate.json import DOCUMENT, report_of
from memplan.report.html.gate import render
from memplan.units import format_bytes
from tests.report.html.chromium import Chromium
from tests.report.html.gate_example import AFTER, GROWN, RESULT
from tests.report.html.reader import Reader


def test_every_row_and_finding_is_told() -> None:
    words = Reader(render(RESULT)).words
    for row in RESULT.rows:
        assert row.job in words
        for finding in row.findings:
            assert f"{finding.code} {finding.message}" in words
            assert finding.fix in words
    assert headline(RESULT) in words
    assert RESULT.notes[0] in words
    assert "✗ FAILED llama-8b-sft h100-80g 78.49 GiB 72.00 GiB +8.00 GiB (+11.3 %)" in words
    assert "! WARNING bert <base>" in words
    assert "? UNKNOWN hangs h100-80g no figure" in words


def test_what_grew_is_told_with_its_line() -> None:
    words = Reader(render(RESULT)).words
    assert "+8.00 GiB parameter model.layers.*.mlp x32 train/model.py:41 8.00 GiB 16.00 GiB" in words
    assert "parameters 15.00 GiB 23.00 GiB +8.00 GiB" in words


def test_the_json_in_the_page_is_that_of_the_gate() -> None:
    assert json.loads(Reader(render(RESULT)).report) == json.loads(json.dumps(DOCUMENT.plain(report_of(RESULT))))


def test_a_gate_without_rows_has_a_page() -> None:
    assert "no jobs" in Reader(render(GateResult(project=Path("memplan.toml"), rows=(), baseline=None))).words


def test_rows_are_looked_into_one_at_a_time(
    chromium: Chromium, recorded: tuple[RecordedEstimate, ...], tmp_path: Path
) -> None:
    digests = {(GROWN.job, GROWN.gpu): recorded[0].digest}
    (tmp_path / "gate.html").write_text(render(replace(RESULT, digests=digests)), encoding="utf-8")
    chromium.open((tmp_path / "gate.html").as_uri())
    visible = "[...document.querySelectorAll('article')].filter(each => each.checkVisibility()).map(each => each.id)"
    assert chromium.js(visible) == ["llama-8b-sft-h100-80g"]
    article = "article#llama-8b-sft-h100-80g"
    assert chromium.js(f"document.querySelector('{article} [data-part=timeline] .readout').innerText").startswith(
        "the peak"
    )
    top = chromium.js(f"document.querySelector('{article} [data-part=treemap] .readout').innerText")
    assert format_bytes(AFTER.breakdown["parameter"] + 0) in chromium.js(
        f"document.querySelector('{article}').innerText"
    )
    assert top.startswith("device")
    chromium.js("document.querySelector('a[data-article=bert--base--h100-80g]').click()")
    chromium.until(f"({visible}).join() === 'bert--base--h100-80g'")
    chromium.js("document.querySelector('a[data-article=vit-h100-80g]').click()")
    chromium.until(f"({visible}).join() === 'vit-h100-80g'")
    assert chromium.complaints() == []
