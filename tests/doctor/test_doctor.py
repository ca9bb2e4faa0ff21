"""``memplan doctor``: what is there, what is not, and that what memplan cannot do without ends in exit 3."""

import json
import tomllib
from pathlib import Path

import jsonschema
import pytest

from memplan.cli.app import main
from memplan.doctor import look
from memplan.doctor.records import Checkup
from memplan.errors import ExitCode
from memplan.report.doctor import text
from memplan.report.doctor.json import DOCUMENT
from memplan.seam import find

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
NOT_OF_USERS = {"test", "frameworks", "dev"}
"""Extras for who works on memplan."""


@pytest.fixture(scope="module")
def here() -> Checkup:
    return look.look()


def test_this_machine_is_ready(here: Checkup) -> None:
    assert here.lost == ()
    assert {check.group for check in here.checks} == {"versions", "seam", "solvers", "extras", "devices", "caches"}


def test_what_is_absent_says_what_that_costs(here: Checkup) -> None:
    assert [check for check in here.checks if check.state == "absent" and not check.note] == []


@pytest.mark.parametrize("width", [60, 80, 100])
def test_lines_fit(here: Checkup, width: int) -> None:
    lines = text.render(here, width=width)
    assert max(line.cell_len for line in lines) <= width
    assert lines[-1].plain.startswith("✓ READY")


def test_json_is_what_its_schema_says(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memplan.doctor.look._seam", lambda: iter(()))
    assert main(["doctor", "--json"]) == ExitCode.DONE
    content = json.loads(capsys.readouterr().out)
    jsonschema.validate(content, DOCUMENT.schema)
    assert content["command"] == "doctor"
    assert {"versions", "solvers", "devices"} <= {check["group"] for check in content["checks"]}


def test_a_lost_name_ends_in_exit_3_and_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "has", lambda owner, name: name != "tree_leaves" and hasattr(owner, name))
    assert main(["doctor"]) == ExitCode.UNKNOWN
    out = capsys.readouterr().out
    assert "✗ torch.utils._pytree.tree_leaves" in out
    assert "NOT READY" in out


def test_extras_are_those_of_the_project() -> None:
    wanted = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(look.EXTRAS) == set(wanted) - NOT_OF_USERS
    for extra, (packages, _) in look.EXTRAS.items():
        assert [line.split(">")[0].split("[")[0].strip() for line in wanted[extra]] == list(packages)


def test_an_empty_machine_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "installed", lambda _: look.NOT_INSTALLED)
    monkeypatch.setattr(look, "imported", lambda _: None)
    checkup = look.look()
    assert [check.name for check in checkup.lost] == ["torch"]
    states = {check.state for check in checkup.checks if check.group in {"solvers", "extras"}}
    assert states == {"absent"}


def test_caches_are_told_with_their_size(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "key").mkdir()
    (tmp_path / "key" / "entry").write_bytes(b"x" * 2048)
    monkeypatch.setenv("MEMPLAN_CACHE_DIR", str(tmp_path))
    (check,) = look._caches()
    assert check.found == f"2.00 KiB in {tmp_path}"
