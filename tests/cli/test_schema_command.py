"""``memplan schema`` lists what is exchanged, and prints what each obeys."""

import json

import jsonschema
import pytest

from memplan.cli.app import main
from memplan.report.documents import names


def test_without_a_name_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert capsys.readouterr().out.split() == names()


@pytest.mark.parametrize("name", names())
def test_a_schema_is_printed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", name]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(found)
    assert found["$schema"].endswith("2020-12/schema")


def test_an_unknown_name_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "no-such"]) == 2
    assert "those that there are: audit, batch" in capsys.readouterr().err
