"""``memplan estimate -f html``, ``--redact`` and ``--timeline`` as typed."""

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from memplan.cli.app import main
from memplan.measure import compose
from memplan.measure.document import TIMELINE
from memplan.measure.records import RecordedEstimate
from tests.report.html.conftest import TARGET
from tests.report.html.reader import Reader

Run = Callable[..., int]


@pytest.fixture
def run(recorded: tuple[RecordedEstimate, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """``memplan estimate net.py --gpu h100-80g`` with further words, its answer made beforehand."""
    (tmp_path / "net.py").write_text(TARGET)
    monkeypatch.chdir(tmp_path)
    bare = [dataclasses.replace(result, digest=None) for result in recorded]
    answers = {"timelines": recorded, "figures": bare}
    monkeypatch.setattr(compose, "estimate", lambda _, profiles, *, detail, **__: answers[detail][: len(profiles)])
    return lambda *words: main(["estimate", "net.py", "--gpu", "h100-80g", *words])


def test_a_page_stands_beside_other_reports(
    run: Run, recorded: tuple[RecordedEstimate, ...], tmp_path: Path, capsys
) -> None:
    assert run("-f", "html=report.html", "-f", "json=report.json", "-f", "text") == 0
    data = json.loads(Reader((tmp_path / "report.html").read_text()).report)
    assert data.pop("timeline") == json.loads(json.dumps(TIMELINE.plain(recorded[0].digest)))
    assert data == json.loads((tmp_path / "report.json").read_text())
    assert "FITS" in capsys.readouterr().out


def test_a_page_of_several_gpus_and_one_to_standard_output(run: Run, capsys) -> None:
    assert run("--gpu", "rtx-3070", "-f", "html") == 0
    assert "h100-80g" in Reader(capsys.readouterr().out).words


def test_json_has_the_timeline_only_where_it_is_asked_for(
    run: Run, recorded: tuple[RecordedEstimate, ...], capsys
) -> None:
    assert run("--json") == 0
    assert "timeline" not in json.loads(capsys.readouterr().out)
    assert run("--json", "--timeline") == 0
    expected = json.loads(json.dumps(TIMELINE.plain(recorded[0].digest)))
    assert json.loads(capsys.readouterr().out)["timeline"] == expected


def test_redaction_reaches_every_report(run: Run, tmp_path: Path, capsys) -> None:
    names = re.compile(r"blocks\.[\d*]|net\.py")
    words = ["-f", "text", "-f", "html=report.html", "-f", "json=report.json", "--timeline", "--explain"]
    for further, told in (([], True), (["--redact"], False)):
        assert run(*words, *further) == 0
        page = Reader((tmp_path / "report.html").read_text())
        reports = (
            capsys.readouterr().out,
            (tmp_path / "report.json").read_text(),
            page.words,
            page.report,
        )
        assert [bool(names.search(report)) for report in reports] == [told] * 4


def test_an_export_cannot_be_redacted(run: Run, capsys) -> None:
    assert run("-f", "snapshot=memory.pickle", "--redact") == 2
    assert "--redact cannot hide" in capsys.readouterr().err


@pytest.mark.parametrize("gpus", [(), ("--gpu", "rtx-3070")])
def test_saved_json_is_drawn_if_it_has_the_timeline(run: Run, gpus: tuple[str, ...], tmp_path: Path) -> None:
    assert run(*gpus, "-f", "json=with.json", "--timeline", "-f", "html=report.html") == 0
    assert main(["report", "with.json", "-f", "html=again.html", "-f", "json=again.json"]) == 0
    assert (tmp_path / "again.html").read_bytes() == (tmp_path / "report.html").read_bytes()
    assert json.loads((tmp_path / "again.json").read_text()) == json.loads((tmp_path / "with.json").read_text())
    assert run(*gpus, "-f", "json=without.json") == 0
    assert main(["report", "without.json", "-f", "html=without.html"]) == 0
    words = Reader((tmp_path / "without.html").read_text()).words
    assert "Memory over the step" not in words
    assert words.count("memplan estimate -f html draws them") == 1 + len(gpus) // 2


@pytest.mark.slow
def test_a_target_is_digested_in_its_child_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.py").write_text(TARGET)
    monkeypatch.chdir(tmp_path)
    words = ["-f", "html=report.html", "-f", "snapshot=memory.pickle"]
    assert main(["estimate", "net.py", "--gpu", "a100-80g", "--batch-size", "32", *words]) == 0
    data = json.loads(Reader((tmp_path / "report.html").read_text()).report)
    assert max(data["timeline"]["curve"]["allocated_bytes"]) == data["peak"]["allocated_bytes"]
    assert (tmp_path / "memory.pickle").stat().st_size
