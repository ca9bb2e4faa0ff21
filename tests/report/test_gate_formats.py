"""The gate's formats for CI systems: valid by others' schemas and parsers, stable, and inert whatever names say."""

import importlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from hypothesis import example as with_example
from hypothesis import given, settings
from syrupy.assertion import SnapshotAssertion

from memplan.cli.app import main
from memplan.cli.gate import RENDERERS
from memplan.findings.formats import FORMATS as FINDING_FORMATS
from memplan.findings.records import Place
from memplan.findings.rules import ESTIMATE
from memplan.gate.place import in_repository
from memplan.gate.records import GateResult
from memplan.report.gate import badge as gate_badge
from memplan.report.gate import json as gate_json
from memplan.report.gate import junit as gate_junit
from memplan.report.gate import prometheus as gate_prometheus
from memplan.report.gate.findings import findings_of
from memplan.text import clean
from memplan.units import GIB
from tests.gate.results import RESULTS
from tests.report.example_gate import example, renamings
from tests.report.formats import CODE_QUALITY, SCHEMAS, commands, sarif_schema

EXAMPLE = example()
EMPTY = GateResult(project=Path("memplan.toml"), rows=(), baseline=None)
FEW = settings(max_examples=30)
FORMATS = ("github", "gitlab", "sarif", "junit", "prometheus", "badge")


def rendered(name: str, result: GateResult) -> str:
    content = findings_of(result) if name in FINDING_FORMATS else result
    text: str = importlib.import_module(RENDERERS[name]).render(content)
    return text


@pytest.mark.parametrize("name", FORMATS)
def test_final_text(name: str, snapshot: SnapshotAssertion) -> None:
    assert rendered(name, EXAMPLE) == snapshot


# What the formats' own schemas say.

BADGE = {
    "type": "object",
    "required": ["schemaVersion", "label", "message"],
    "additionalProperties": False,
    "properties": {
        "schemaVersion": {"const": 1},
        "label": {"type": "string"},
        "message": {"type": "string", "minLength": 1},
        "color": {"enum": ["brightgreen", "green", "yellowgreen", "yellow", "orange", "red", "blue", "lightgrey"]},
    },
}
"""shields.io/badges/endpoint-badge, and the colours that it names."""


def check(name: str, text: str) -> None:
    """Hold a text to its format's schema."""
    match name:
        case "sarif":
            sarif_schema().validate(json.loads(text))
        case "gitlab":
            jsonschema.validate(json.loads(text), CODE_QUALITY)
        case "badge":
            jsonschema.validate(json.loads(text), BADGE)
        case "junit":
            junit_schema().validate(text)


@cache
def junit_schema() -> object:
    return pytest.importorskip("xmlschema").XMLSchema(str(SCHEMAS / "jenkins-junit.xsd"))


VALIDATED = ("sarif", "gitlab", "badge", "junit")


@pytest.mark.parametrize("result", [EXAMPLE, EMPTY], ids=["example", "empty"])
@pytest.mark.parametrize("name", VALIDATED)
def test_it_is_valid(name: str, result: GateResult) -> None:
    check(name, rendered(name, result))


@FEW
@given(RESULTS, renamings())
def test_whatever_is_found_and_whatever_it_is_called_it_is_valid(result: GateResult, names: Mapping[str, str]) -> None:
    for name in VALIDATED:
        check(name, rendered(name, result))
        check(name, rendered(name, example(names.__getitem__)))


def test_the_schemas_refuse_what_is_wrong() -> None:
    log = json.loads(rendered("sarif", EXAMPLE))
    log["runs"][0]["results"][0]["level"] = "dreadful"
    with pytest.raises(jsonschema.ValidationError):
        check("sarif", json.dumps(log))
    xmlschema = pytest.importorskip("xmlschema")
    with pytest.raises(xmlschema.XMLSchemaValidationError):
        check("junit", rendered("junit", EXAMPLE).replace("<failure", "<disaster").replace("</failure", "</disaster"))


# GitHub's workflow commands.


def test_commands_of_github_lead_to_the_line() -> None:
    first = commands(rendered("github", EXAMPLE))[0]
    assert first[0] == "error"
    assert first[1] == {
        "file": "train/model.py", "line": "41", "title": "MP006 grew beyond max-increase: llama-8b-sft on h100-80g",
    }  # fmt: skip
    assert "+11.00 GiB activations of model.layers.0.mlp (train/model.py:41)" in first[2].split("\n")


@FEW
@given(renamings())
def test_nothing_in_a_name_is_a_command_of_github(names: Mapping[str, str]) -> None:
    result = example(names.__getitem__)
    tame, hostile = commands(rendered("github", EXAMPLE)), commands(rendered("github", result))
    assert [command for command, _, _ in hostile] == [command for command, _, _ in tame]
    for (_, properties, text), (_, tame_properties, tame_text) in zip(hostile, tame, strict=True):
        assert properties["file"] == clean(names[tame_properties["file"]])
        assert properties["line"] == tame_properties["line"]
        assert text.count("\n") == tame_text.count("\n")
        assert not any(char in text.replace("\n", "") for char in "\r\x1b\x00\u2028")


def test_github_shows_ten_and_says_how_many_more() -> None:
    row = EXAMPLE.rows[3]
    notes = replace(EXAMPLE.rows[0], outcome="passed")
    rows = (notes, *(replace(row, job=f"job-{index}") for index in range(19)))
    found = commands(rendered("github", replace(EXAMPLE, rows=rows)))
    assert [command for command, _, _ in found] == ["error"] * 10
    assert found[-1][2].startswith("11 more findings (MP001, MP008)")
    assert all(properties["title"].startswith("MP") for _, properties, _ in commands(
        rendered("github", replace(EXAMPLE, rows=rows[:10]))
    ))  # fmt: skip


# Fingerprints.


def identities(result: GateResult) -> list[str]:
    issues = [issue["fingerprint"] for issue in json.loads(rendered("gitlab", result))]
    results = json.loads(rendered("sarif", result))["runs"][0]["results"]
    assert [each["partialFingerprints"]["primaryLocationLineHash"] for each in results] == issues
    return issues


@FEW
@given(RESULTS)
@with_example(EXAMPLE)
def test_no_two_findings_have_one_fingerprint(result: GateResult) -> None:
    assert len(set(identities(result))) == sum(len(row.findings) for row in result.rows)


def test_fingerprints_outlast_figures_lines_and_the_order_of_jobs() -> None:
    def moved(place: Place) -> Place:
        return replace(place, file="elsewhere.py", line=place.line + 5)

    rows = tuple(
        replace(row, findings=tuple(replace(each, message="new", place=moved(each.place)) for each in row.findings))
        for row in reversed(EXAMPLE.rows)
    )
    assert set(identities(replace(EXAMPLE, rows=rows))) == set(identities(EXAMPLE))


# SARIF.


def test_sarif_has_every_rule_and_points_to_it() -> None:
    (run,) = json.loads(rendered("sarif", EXAMPLE))["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert rules == list(ESTIMATE)
    assert all(rules[result["ruleIndex"]] == result["ruleId"] for result in run["results"])
    assert [result["level"] for result in run["results"]] == ["error"] * 4 + ["warning"] * 2 + ["note"]


@pytest.mark.parametrize(
    ("file", "uri", "base"),
    [
        ("train/model.py", "train/model.py", "%SRCROOT%"),
        ("a folder/50%/c:d.py", "a%20folder/50%25/c%3Ad.py", "%SRCROOT%"),
        ("/home/me/model.py", "file:///home/me/model.py", None),
    ],
)
def test_sarif_names_files_by_address(file: str, uri: str, base: str | None) -> None:
    row = EXAMPLE.rows[3]
    found = replace(row, findings=(replace(row.findings[0], place=Place(file=file, line=3)),))
    (run,) = json.loads(rendered("sarif", replace(EXAMPLE, rows=(found,))))["runs"]
    location = run["results"][0]["locations"][0]["physicalLocation"]
    assert (location["artifactLocation"]["uri"], location["artifactLocation"].get("uriBaseId")) == (uri, base)
    assert location["region"] == {"startLine": 3}


@FEW
@given(renamings())
def test_messages_of_sarif_have_neither_links_nor_placeholders(names: Mapping[str, str]) -> None:
    (run,) = json.loads(rendered("sarif", example(names.__getitem__)))["runs"]
    for result in run["results"]:
        text = result["message"]["text"]
        assert not re.search(r"(?<!\{)(\{\{)*\{[0-9]+\}", text)
        assert not re.search(r"(?<!\\)\[[^\]]*\]\(", text)


# JUnit.


def test_junit_tells_failures_errors_and_skips_apart() -> None:
    informational = replace(EXAMPLE.rows[4], job="idle", outcome="passed", informational=True)
    suite = ET.fromstring(gate_junit.render(replace(EXAMPLE, rows=(*EXAMPLE.rows, informational))))[0]
    kinds = {"failure", "error", "skipped"}
    cases = {case.get("name"): [each.tag for each in case if each.tag in kinds] for case in suite.iter("testcase")}
    assert cases == {
        "bert on h100-80g": [], "llama-8b-sft on h100-80g": ["failure"], "llama-8b-sft on a100-40g": ["failure"],
        "llama-70b on a100-40g": ["failure"], "custom-op on h100-80g": ["error"], "experiment on a100-40g": [],
        "idle on h100-80g": ["skipped"],
    }  # fmt: skip
    assert [suite.get(key) for key in ("tests", "failures", "errors", "skipped")] == ["7", "3", "1", "1"]


@FEW
@given(renamings())
def test_junit_keeps_names_and_nothing_in_them_is_an_element(names: Mapping[str, str]) -> None:
    tame, hostile = ET.fromstring(gate_junit.render(EXAMPLE)), ET.fromstring(gate_junit.render(example(names.get)))
    assert [each.tag for each in hostile.iter()] == [each.tag for each in tame.iter()]
    for case, was in zip(hostile.iter("testcase"), tame.iter("testcase"), strict=True):
        job, gpu = was.get("name").split(" on ")
        assert case.get("name") == f"{clean(names[job])} on {clean(names[gpu])}"


# Prometheus.


def samples(text: str) -> dict[tuple[str, str | None, str | None], float]:
    parser = pytest.importorskip("prometheus_client.parser")
    found = [sample for family in parser.text_string_to_metric_families(text) for sample in family.samples]
    keys = [(sample.name, sample.labels.get("job"), sample.labels.get("gpu")) for sample in found]
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, (sample.value for sample in found), strict=True))


@FEW
@given(renamings())
def test_prometheus_reads_every_figure_whatever_a_job_is_called(names: Mapping[str, str]) -> None:
    result = example(names.__getitem__)
    found = samples(gate_prometheus.render(result))
    keyed = {(clean(row.job), clean(row.gpu)): row for row in result.rows}
    for (job, gpu), row in keyed.items():
        assert found["memplan_gate_failed", job, gpu] == (row.outcome == "failed")
        assert found["memplan_gate_unknown", job, gpu] == (row.outcome == "unknown")
        if row.outcome != "unknown":
            peak, usable = row.estimate.peak.device_bytes, row.estimate.gpu.usable_bytes
            assert found["memplan_predicted_peak_bytes", job, gpu] == peak
            assert found["memplan_headroom_bytes", job, gpu] == usable - peak
            assert found["memplan_headroom_ratio", job, gpu] == pytest.approx(1 - peak / usable)
    peaks = [key for key in found if key[0] == "memplan_predicted_peak_bytes"]
    assert len(peaks) == sum(row.outcome != "unknown" for row in keyed.values())


@FEW
@given(RESULTS)
def test_prometheus_reads_every_result(result: GateResult) -> None:
    assert samples(gate_prometheus.render(result))["memplan_build_info", None, None] == 1


def test_metrics_are_named_as_prometheus_wants_them() -> None:
    text = gate_prometheus.render(EXAMPLE)
    names = re.findall(r"^# TYPE (\S+) gauge$", text, re.MULTILINE)
    assert re.findall(r"^# HELP (\S+) .", text, re.MULTILINE) == names
    assert all(re.fullmatch(r"memplan_[a-z_]+_(bytes|ratio|seconds|info|failed|unknown)", name) for name in names)


def test_a_device_without_a_limit_has_no_headroom() -> None:
    row = EXAMPLE.rows[0]
    cpu = replace(row, limit=None, estimate=replace(row.estimate, gpu=replace(row.estimate.gpu, usable_bytes=0)))
    found = samples(gate_prometheus.render(replace(EXAMPLE, rows=(cpu,))))
    assert {name for name, _, _ in found} & {"memplan_headroom_bytes", "memplan_limit_bytes"} == set()


# Badge, and places.


@pytest.mark.parametrize(
    ("rows", "message", "color"),
    [
        (EXAMPLE.rows, "3 of 6 failed, 1 unknown, 1 only told", "red"),
        (EXAMPLE.rows[:1], "70.49 GiB of 75.00 GiB", "brightgreen"),
        (EXAMPLE.rows[3:4], "70.49 GiB of 39.02 GiB", "red"),
        (EXAMPLE.rows[4:5], "no figure", "lightgrey"),
        (EXAMPLE.rows[5:], "70.49 GiB of 39.02 GiB", "yellow"),
        (EXAMPLE.rows[:1] * 2, "all 2 passed", "brightgreen"),
        ((EXAMPLE.rows[0], EXAMPLE.rows[5]), "all 2 passed, 1 only told", "yellow"),
        ((), "no jobs", "lightgrey"),
    ],
)
def test_badge(rows: tuple, message: str, color: str) -> None:
    badge = json.loads(gate_badge.render(replace(EXAMPLE, rows=rows)))
    assert (badge["message"], badge["color"]) == (message, color)


def test_the_smaller_of_two_limits_is_what_counts() -> None:
    row = replace(EXAMPLE.rows[3], limit=75 * GIB)
    assert "70.49 GiB of 39.02 GiB" in gate_badge.render(replace(EXAMPLE, rows=(row,)))


def test_places_begin_at_the_repository(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "training" / "llm").mkdir(parents=True)
    result = in_repository(replace(EXAMPLE, project=tmp_path / "training" / "llm" / "memplan.toml"))
    files = {finding.place.file for row in result.rows for finding in row.findings}
    assert files == {"training/llm/train/model.py", "training/llm/memplan.toml"}
    at_root = in_repository(replace(EXAMPLE, project=tmp_path / "memplan.toml"))
    assert at_root.rows == EXAMPLE.rows


def test_every_address_of_sarif_is_the_file_s_own() -> None:
    issues = json.loads(rendered("gitlab", EXAMPLE))
    results = json.loads(rendered("sarif", EXAMPLE))["runs"][0]["results"]
    uris = [each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for each in results]
    assert [unquote(uri) for uri in uris] == [issue["location"]["path"] for issue in issues]


def test_github_says_nothing_where_nothing_is_found() -> None:
    assert rendered("github", EMPTY) == ""


# The command line.


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    (tmp_path / "gate.json").write_text(gate_json.render(EXAMPLE))
    return tmp_path / "gate.json"


def test_every_format_is_written_at_once(saved: Path) -> None:
    folder = saved.parent
    wanted = (*FORMATS, "markdown", "comment")
    assert main(["report", str(saved), "-q", *(f"-f{name}={folder / name}" for name in wanted)]) == 0
    at_root = in_repository(EXAMPLE)
    assert {each.place.file for row in at_root.rows for each in row.findings} == {
        "sub/train/model.py",
        "sub/memplan.toml",
    }
    for name in wanted:
        assert (folder / name).read_text(encoding="utf-8").rstrip() == rendered(name, at_root).rstrip()


def test_github_s_lines_go_beside_another_report(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(saved), "-q", "-ftext", "-fgithub"]) == 0
    text = capsys.readouterr().out
    assert "3 of 6 failed" in text
    assert len(re.findall("^::", text, re.MULTILINE)) == 7
    assert main(["report", str(saved), "-fjunit", "-fsarif"]) == 2
