"""``memplan open``: JSON becomes a page, a page opens as it is, and where no browser is, the file is named."""

from pathlib import Path

import pytest

from memplan.cli.app import main
from memplan.report.estimate.json import render
from tests.report.example_estimates import FITS


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    addresses: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: addresses.append(address) or True)
    return addresses


def test_json_becomes_a_page(opened: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "estimate.json"
    saved.write_text(render([FITS]))
    assert main(["open", str(saved)]) == 0
    page = Path(capsys.readouterr().out.strip())
    assert opened == [page.as_uri()]
    assert page.read_text().startswith("<!DOCTYPE html>")


def test_a_page_opens_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("webbrowser.open", lambda _: False)
    page = tmp_path / "page.html"
    page.write_text("<!DOCTYPE html>")
    assert main(["open", str(page)]) == 0
    told = capsys.readouterr()
    assert told.out.strip() == str(page)
    assert "no browser" in told.err
    assert main(["open", str(tmp_path / "none.json")]) == 2


def test_a_snapshot_has_a_command_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "memory.pickle").write_bytes(b"\x80\x04.")
    assert main(["open", str(tmp_path / "memory.pickle")]) == 2
    assert f"memplan snapshot {tmp_path}/memory.pickle reads CUDA memory snapshots" in capsys.readouterr().err
