"""``memplan report`` of estimates: what it cannot write is refused before anything is written."""

from pathlib import Path

import pytest

from memplan.cli.app import main
from memplan.report.estimate import json as estimate_json
from tests.report.example_estimates import FITS


def test_an_export_of_an_estimate_is_refused_before_anything_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("estimate.json").write_text(estimate_json.render([FITS]))
    assert main(["report", "-f", "perfetto=out.trace", "estimate.json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "is for recordings of memplan.profile" in captured.err
    assert not Path("out.trace").exists()
