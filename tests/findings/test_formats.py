"""What any finding is in every format: valid, whoever found it, with or without a place."""

import json
from dataclasses import replace
from importlib import import_module

import jsonschema
import pytest

from memplan.cli import audit, gate
from memplan.findings.formats import FORMATS
from memplan.findings.identity import identified
from memplan.findings.records import SEVERITIES, Finding, Findings, Place, Severity
from memplan.findings.rules import RULES
from memplan.runtime.monitor.records import Level
from tests.report.formats import CODE_QUALITY, commands, sarif_schema


def one(code: str, severity: Severity, place: Place) -> Finding:
    return Finding(code=code, severity=severity, message="it grows", place=place, fix=RULES[code].remedy)


PLACES = (Place(file=""), Place(file="train.py", line=3), Place(file="a.ipynb", line=2, cell=1, column=4))
FOUND = [
    one(code, severity, place)
    for code in ("MP001", "MA001", "MM001", "ML001")
    for severity in SEVERITIES
    for place in PLACES
]
FINDINGS = Findings(command="monitor", found=identified(FOUND), rules=tuple(RULES.values()), version=None)


def rendered(name: str, findings: Findings = FINDINGS) -> str:
    text: str = import_module(FORMATS[name]).render(findings)
    return text


def test_whoever_finds_it_every_format_is_valid() -> None:
    sarif_schema().validate(json.loads(rendered("sarif")))
    jsonschema.validate(json.loads(rendered("gitlab")), CODE_QUALITY)
    assert [command for command, _, _ in commands(rendered("github"))] == ["error"] * 10


@pytest.mark.parametrize("name", FORMATS)
def test_nothing_found_is_a_report_too(name: str) -> None:
    assert len(rendered(name, replace(FINDINGS, found=()))) < len(rendered(name))


def test_the_worst_come_first_and_no_two_are_one() -> None:
    severities = [finding.severity for finding in FINDINGS.found]
    assert severities == sorted(severities, key=SEVERITIES.index)
    assert len({finding.identity for finding in FINDINGS.found}) == len(FOUND)


def test_an_identity_lasts_while_figures_and_lines_change() -> None:
    moved = [replace(each, message="it grows more", place=replace(each.place, line=99)) for each in FOUND]
    assert [each.identity for each in identified(moved)] == [each.identity for each in FINDINGS.found]
    of_a_job = [replace(each, subject=("llama", "h100-80g")) for each in FOUND]
    elsewhere = [replace(each, place=Place(file="other.py")) for each in of_a_job]
    assert [each.identity for each in identified(of_a_job)] == [each.identity for each in identified(elsewhere)]


def test_the_monitor_s_levels_are_severities() -> None:
    assert [Level.of(severity) for severity in SEVERITIES] == sorted(Level, reverse=True)
    assert [Level.of(level.severity) for level in Level] == list(Level)


def test_both_commands_have_every_format() -> None:
    assert set(FORMATS) <= set(gate.FORMATS) & set(audit.FORMATS)
