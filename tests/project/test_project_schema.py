"""The published schema of project files takes what the reader takes and refuses what it refuses."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memplan.project.keys import JOB as JOB_KEYS
from memplan.project.keys import TOP
from memplan.project.values import values_of
from memplan.report.documents import schema
from tests.project.cases import BAD, JOB, KEYS, TYPED

SCHEMA = schema("project")
OF_JOB = SCHEMA["$defs"]["job"]["properties"]
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def test_both_know_the_same_keys() -> None:
    assert set(SCHEMA["properties"]) == {*TOP, "job"}
    assert set(OF_JOB) == set(JOB_KEYS)
    assert all(each.get("description") for each in OF_JOB.values())
    VALIDATOR.check_schema(SCHEMA)


def accepted(content: Mapping[str, Any]) -> bool:
    return VALIDATOR.is_valid({"job": [{"name": "a", "target": "preset:gpt2", **content}]})


def test_good_files_are_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    VALIDATOR.validate(tomllib.loads(f"{KEYS}[[job]]{JOB}"))
    typed = {{"inputs": "input"}.get(name, name.replace("_", "-")): value for name, value in TYPED.items()}
    assert accepted(typed)
    assert values_of(typed, JOB_KEYS)[1] == []


WRONG: Mapping[str, list[Any]] = {
    "name": ["", 3],
    "target": [3, ""],
    "config": [3, [""], ""],
    "gpus": [[], "l4", [3], [""]],
    "timeout": [0, -1, "0", "10 years", True],
    "alloc-conf": [3],
    "max-peak": [72, "72 apples", "0GiB", "5%", ""],
    "min-headroom": [5, "5%%", "-5%", "x", ""],
    "max-fragmentation": ["2GiB", 0.1, "", "-5%"],
    "max-increase": [0.02, "two percent", "%"],
    "fail-on": ["never", True],
    "informational": ["yes", 1],
    "message": [3],
    "batch-size": [0, "8", True, 1.5],
    "seq-len": [0],
    "precision": ["bf8"],
    "clip-grad-norm": [0, "x"],
    "parallel": [8, ""],
    "lora": [{"rank": 8}, ""],
    "input": ["x=int64[B]", [3], [""]],
    "checkpoint": [True, ""],
    "pin-memory": ["no"],
    "data-workers": [-1],
    "batchsize": [8],
    "baseline": ["x"],
    "zero": [{"stage": 3}],
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in WRONG.items() for value in values])
def test_what_the_reader_refuses_the_schema_refuses(key: str, value: Any) -> None:
    assert values_of({key: value}, JOB_KEYS)[1]
    assert not accepted({key: value})


def test_a_file_full_of_slips_is_refused_by_the_schema_too() -> None:
    places = {".".join(map(str, error.path)) for error in VALIDATOR.iter_errors(tomllib.loads(BAD))}
    assert {"max-peak", "job.1.max-peak", "job.1.fail-on", "job.1.timeout", "job.2.gpus"} <= places
    assert not VALIDATOR.is_valid({"gpus": ["l4"]})
    assert not VALIDATOR.is_valid({"job": []})


sizes = st.text("019.%kKmGiIbBsSh -", max_size=8)


@given(key=st.sampled_from(["max-peak", "min-headroom", "max-increase", "max-fragmentation", "timeout"]), text=sizes)
@example(key="min-headroom", text="99.%")
@example(key="timeout", text=" 1.5 m ")
def test_both_read_the_same_sizes_shares_and_times(key: str, text: str) -> None:
    problems = values_of({key: text}, JOB_KEYS)[1]
    if problems and ("below 100%" in problems[0] or "above 0" in problems[0]):
        return  # of how much it is, the schema knows only whether there is a digit
    assert accepted({key: text}) == (not problems)
