"""``memplan gate``: exit codes, baselines, files, and every way to get it wrong."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from memplan.cli.app import main
from memplan.errors import UsageError
from memplan.gate.saved import load_entries, render_baseline
from memplan.units import GIB
from tests.gate.conftest import Jobs, failure
from tests.report.example_estimates import FITS
from tests.report.html.reader import Reader

Gate = Callable[..., int]
Keys = Callable[[str], None]


@pytest.mark.parametrize(
    ("key", "peaks", "words", "code"),
    [
        ("", {}, (), 0),
        ("", {2: 40}, (), 1),  # does not fit
        ("", {2: 40}, ("--exit-zero",), 0),
        ("informational = true", {2: 40}, (), 0),
        ("", {2: 40}, ("llama",), 0),  # not asked for
        ("", {2: 40}, ("--gpu", "h100-80g"), 0),
        ('max-peak = "30GiB"', {}, (), 0),
        ('max-peak = "29GiB"', {}, (), 1),
        ('min-headroom = "10GiB"', {}, (), 1),
        ('min-headroom = "5%"', {}, (), 0),
        ("", {1: None}, (), 3),
        ("", {1: None}, ("--fail-on", "unknown"), 1),
        ('fail-on = "unknown"', {1: None}, ("--fail-on", "oom"), 3),
        ("", {1: None, 2: 40}, (), 1),  # what fails outweighs what is not known
        ("informational = true", {1: None}, (), 0),
        ("", {1: None}, ("--exit-zero",), 0),
    ],
)  # fmt: skip
def test_exit_codes(
    gate: Gate, jobs: Jobs, with_keys: Keys, key: str, peaks: dict[int, float | None], words: tuple[str, ...], code: int
) -> None:
    with_keys(key)
    jobs.peaks |= peaks
    jobs.failures = {batch: failure() for batch, peak in peaks.items() if peak is None}
    assert gate(*words) == code


@pytest.mark.parametrize(
    ("key", "words", "said"),
    [
        ("", ("nobody",), "no job 'nobody'"),
        ("", ("--gpu", "h1000"), "h1000"),
        ("", ("--fail-on", "never"), "never"),
        ("", ("--jobs", "0"), "--jobs must be at least 1"),
        ("", ("--project", "none.toml"), "none.toml"),
        ("", ("--update-baseline",), "--update-baseline needs a baseline"),
        ('max-increase = "2%"', (), "max-increase of job llama needs a baseline"),
        ('max-increase = "2%"\nbaseline = "b.json"', (), "there is no baseline 'b.json'"),
        ('baseline = "memplan.toml"', (), "the project file itself"),
        ("", ("--baseline", "none/b.json", "--update-baseline"), "a folder that does not exist"),
        ('baseline = "b.json"', ("-f", "json=b.json"), "over the baseline 'b.json'"),
        ("", ("-f", "json=./memplan.toml"), "over the project file"),
        ("", ("-f", "json=a", "-f", "text=./a"), "two reports"),
        ("", ("-f", "json=none/a"), "cannot write"),
        ("", ("-f", "pdf"), "must be one of text, json"),
        ("", ("--fail-on", ""), "fail-on"),
        ("", ("--baseline", "typo.json"), "there is no baseline 'typo.json'"),
        ('baseline = "b.json"', ("--baseline", "typo.json"), "there is no baseline 'typo.json'"),
        ("", ("--baseline", "broken.json"), "is no JSON"),
        ("", ("--baseline", "future.json"), "schema_version 7.1 is not read here"),
        ("", ("--baseline", "other.json"), "the result of memplan simulate holds no estimates"),
        ("", ("--baseline", "gate.json", "--update-baseline"), "is no baseline, but the result of 'gate'"),
    ],
)  # fmt: skip
def test_wrong_usage_is_told_before_anything_runs(
    gate: Gate, jobs: Jobs, with_keys: Keys, project: Path, key: str, words: tuple[str, ...], said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    with_keys(key)
    (project / "broken.json").write_text("{")
    (project / "future.json").write_text('{"schema_version": "7.1"}')
    (project / "other.json").write_text('{"schema_version": "1.0", "command": "simulate"}')
    (project / "gate.json").write_text('{"schema_version": "1.0", "command": "gate", "rows": []}')
    before = {path.name: path.read_bytes() for path in project.iterdir()}
    assert gate(*words) == 2
    assert said in capsys.readouterr().err
    assert jobs.ran == []
    assert {path.name: path.read_bytes() for path in project.iterdir()} == before


def test_the_last_line_is_the_answer(gate: Gate, jobs: Jobs, capsys: pytest.CaptureFixture[str]) -> None:
    jobs.peaks[2] = 40
    gate()
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("✗ 1 of 3 failed  ")
    assert all(len(line) <= 80 for line in lines)


def test_growth_beyond_the_limit_fails_until_it_is_accepted(
    gate: Gate, jobs: Jobs, with_keys: Keys, capsys: pytest.CaptureFixture[str]
) -> None:
    with_keys('baseline = "b.json"\nmax-increase = "2%"')
    assert gate("--update-baseline") == 0
    jobs.peaks[1] = 30.6
    assert gate("--no-cache") == 0
    jobs.peaks[1] = 30.61
    assert gate("--no-cache") == 1
    said = capsys.readouterr().out
    assert "peak grew by 624.64 MiB (+2.0 %)" in said
    assert "layers.3.mlp" in said
    assert "at model.py:2" in said
    assert gate("--no-cache", "--update-baseline") == 0
    assert gate("--no-cache") == 0


def test_over_a_budget_it_is_told_what_would_keep_it(
    gate: Gate, jobs: Jobs, with_keys: Keys, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_keys('max-peak = "29GiB"')
    assert gate("-f", "text", "-f", "json=gate.json") == 1
    assert "or: --checkpoint full → 28.00 GiB (+30 % time)" in " ".join(capsys.readouterr().out.split())
    assert sorted(jobs.ran) == [1, 1, 1, 2], "once more for each GPU on which it is over"
    first, *_ = json.loads((project / "gate.json").read_text())["rows"]
    assert first["estimate"]["gpu"]["usable_bytes"] > 70 * GIB, "the estimate itself is of the real GPU"
    assert first["estimate"]["verdict"] == "fits"
    assert gate() == 1
    assert len(jobs.ran) == 4, "advice is kept, too"


def test_only_what_passes_is_written_into_the_baseline(gate: Gate, jobs: Jobs, project: Path) -> None:
    assert gate("--baseline", "b.json", "--update-baseline") == 0
    jobs.peaks |= {1: 60.0, 2: 8.0}  # now too large for the A100
    assert gate("--no-cache", "--baseline", "b.json", "--update-baseline") == 1
    peaks = {key: estimate.peak.device_bytes / GIB for key, estimate in load_entries(project / "b.json").items()}
    assert peaks == {("llama", "h100-80g"): 60.0, ("llama", "a100-40g"): 30.0, ("bert", "t4"): 8.0}
    jobs.failures = {1: failure()}
    assert gate("--no-cache", "--baseline", "b.json", "--update-baseline") == 3
    assert ("llama", "h100-80g") in load_entries(project / "b.json")


def test_what_was_not_run_stays_in_the_baseline(gate: Gate, jobs: Jobs, project: Path) -> None:
    gate("--baseline", "b.json", "--update-baseline")
    before = (project / "b.json").read_bytes()
    assert gate("--baseline", "b.json", "--update-baseline", "bert") == 0
    assert (project / "b.json").read_bytes() == before


def test_a_baseline_says_nothing_of_the_machine() -> None:
    places = {
        "/home/me/venv/lib/python3.12/site-packages/torch/nn/functional.py:3": "torch/nn/functional.py:3",
        "/usr/lib/python3.12/contextlib.py:81": "contextlib.py:81",
        "model.py:4": "model.py:4",
        "../lib/model.py:4": "../lib/model.py:4",
        "": "",
    }
    for source, expected in places.items():
        estimate = replace(FITS, owners=(replace(FITS.owners[0], source=source),))
        saved = json.loads(render_baseline({("a", "t4"): estimate}))["jobs"]["a"]["t4"]
        assert saved["owners"][0]["source"] == expected
        assert saved["timings"] == {}


def test_the_order_of_jobs_does_not_change_the_baseline(gate: Gate, project: Path) -> None:
    gate("--baseline", "b.json", "--update-baseline")
    head, *tables = (project / "memplan.toml").read_text().split("[[job]]")
    (project / "memplan.toml").write_text("[[job]]".join([head, *reversed(tables)]))
    gate("--baseline", "c.json", "--update-baseline")
    assert (project / "b.json").read_bytes() == (project / "c.json").read_bytes()
    assert b"seconds" not in (project / "b.json").read_bytes()


def test_a_result_of_the_gate_serves_as_a_baseline(gate: Gate, jobs: Jobs, with_keys: Keys) -> None:
    with_keys('max-increase = "0%"')
    gate("--baseline", "b.json", "--update-baseline")
    assert gate("--baseline", "b.json", "-f", "json=main.json") == 0
    assert gate("--baseline", "main.json", "--no-cache") == 0
    jobs.peaks[2] = 9.1
    assert gate("--baseline", "main.json", "--no-cache") == 1


@pytest.mark.parametrize(("version", "is_told"), [("2.14.0", True), ("2.13.0+cu126", False)])
def test_another_torch_is_told(
    gate: Gate, jobs: Jobs, version: str, is_told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    gate("--baseline", "b.json", "--update-baseline")
    jobs.torch_version = version
    capsys.readouterr()
    assert gate("--baseline", "b.json", "--no-cache") == 0
    assert (f"made with torch 2.13.0, this is {version}" in " ".join(capsys.readouterr().out.split())) == is_told


def test_figures_of_jobs_that_are_gone_and_of_new_ones_are_told(
    gate: Gate, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gate("--baseline", "b.json", "--update-baseline")
    file = project / "memplan.toml"
    file.write_text(file.read_text().replace('"bert"', '"roberta"'))
    capsys.readouterr()
    assert gate("--baseline", "b.json") == 0
    said = capsys.readouterr().out
    assert "note: the baseline has figures of jobs that are gone: bert" in said
    assert "no figures of roberta on t4" in said
    gate("--baseline", "b.json", "roberta")
    assert "gone" not in capsys.readouterr().out


def test_an_unchanged_job_is_not_run_again(gate: Gate, jobs: Jobs, project: Path) -> None:
    gate()
    gate()
    assert sorted(jobs.ran) == [1, 2]
    gate("--no-cache")
    assert sorted(jobs.ran) == [1, 1, 2, 2]
    file = project / "memplan.toml"
    file.write_text(file.read_text().replace("batch-size = 2", "batch-size = 3"))
    jobs.peaks[3] = 1
    gate()
    assert jobs.ran[-1:] == [3]
    gate("--gpu", "h100-80g")
    assert len(jobs.ran) == 7


def test_a_failure_is_not_kept(gate: Gate, jobs: Jobs) -> None:
    jobs.failures = {2: failure()}
    assert gate() == 3
    jobs.failures = {}
    assert gate() == 0


def test_the_cache_lies_with_the_users_caches(
    project: Path, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MEMPLAN_CACHE_DIR", str(tmp_path / "caches"))
    assert main(["gate"]) == 0
    assert main(["gate"]) == 0
    assert sorted(jobs.ran) == [1, 2]
    assert list((tmp_path / "caches").iterdir())


def test_an_internal_error_of_a_job_is_no_verdict(gate: Gate, jobs: Jobs) -> None:
    jobs.failures = {1: RuntimeError("a defect")}
    assert gate() == 2


def test_an_unwritable_report_is_exit_2_and_the_others_are_there(
    gate: Gate, project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    assert gate("--no-cache", "-f", "json=out.json") == 2
    assert "cannot write 'out.json': No space left on device" in capsys.readouterr().err
    assert not [path.name for path in project.iterdir() if path.name.startswith((".out", "out"))]


def test_several_reports_at_once_and_again(gate: Gate, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gate("-f", "text", "-f", "json=gate.json")
    shown = capsys.readouterr().out
    assert main(["report", "gate.json"]) == 0
    assert capsys.readouterr().out == shown
    assert main(["report", "gate.json", "-f", "json=gate.json"]) == 2
    assert json.loads((project / "gate.json").read_text())["exit_code"] == 0


def test_a_baseline_of_another_shape_is_refused(project: Path) -> None:
    for content in ('"jobs": []', '"jobs": {"a": []}', '"jobs": {"a": {"b": 3}}', '"entries": 1'):
        (project / "b.json").write_text('{"schema_version": "1.0", "command": "baseline", ' + content + "}")
        with pytest.raises(UsageError):
            load_entries(project / "b.json")


def test_a_page_runs_jobs_for_their_timelines_once(gate: Gate, jobs: Jobs, project: Path) -> None:
    def timelines(file: str) -> list[bool]:
        text = (project / file).read_text()
        content = json.loads(Reader(text).report if file.endswith("html") else text)
        return ["timeline" in row["estimate"] for row in content["rows"]]

    assert gate("-f", "json=gate.json") == 0
    assert len(jobs.ran) == 2
    assert gate("-f", "html=gate.html", "-f", "json=gate.json") == 0
    assert len(jobs.ran) == 4, "kept without timelines"
    assert (timelines("gate.html"), timelines("gate.json")) == ([True] * 3, [False] * 3)
    page = (project / "gate.html").read_text()
    assert gate("-f", "html=gate.html") == gate() == gate("-f", "json=gate.json", "--timeline") == 0
    assert len(jobs.ran) == 4, "kept with them"
    assert timelines("gate.json") == timelines("gate.html") == [True] * 3
    assert main(["report", "gate.json", "-f", "html=again.html"]) == 0
    assert main(["report", "gate.json", "-f", "json=again.json"]) == 0
    assert (project / "again.json").read_bytes() == (project / "gate.json").read_bytes()
    assert (project / "again.html").read_text().count('data-part="timeline"') == page.count('data-part="timeline"')


def test_without_timelines_a_page_says_how_to_get_them(
    gate: Gate, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gate("-f", "json=gate.json") == 0
    assert main(["report", "gate.json", "-f", "html"]) == 0
    words = Reader(capsys.readouterr().out).words
    assert words.count("memplan gate -f html") == 3, "each row"


def test_a_broken_timeline_is_told_with_its_file(gate: Gate, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gate("-f", "json=gate.json", "--timeline") == 0
    content = json.loads((project / "gate.json").read_text())
    estimate = content["rows"][0]["estimate"]
    estimate["timeline"]["curve"] = 5
    for name, broken in (("gate.json", content), ("estimate.json", estimate)):
        (project / name).write_text(json.dumps(broken))
        assert main(["report", name]) == 2
        error = capsys.readouterr().err
        assert name in error
        assert "curve: expected" in error


def test_the_projects_own_baseline_need_not_exist_yet(
    gate: Gate, with_keys: Keys, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_keys('baseline = "b.json"')
    assert gate() == 0
    assert "there is no baseline 'b.json' yet" in capsys.readouterr().out
    assert gate("--baseline", "c.json", "--update-baseline") == 0
    assert (project / "c.json").is_file()
