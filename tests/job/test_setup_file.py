"""Setup files: what is written is read back, what is wrong is named with its place, all of it at once."""

import json
from copy import deepcopy
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.errors import UsageError
from memplan.job.config_files.deepspeed import ZERO_KEYS
from memplan.job.setup_file import Setup, load_setup, make_setup, read_setup, setup_hash, write_setup
from memplan.job.spec import FileTarget, HubTarget, InputSpec, JobSpec, ModuleTarget, PresetTarget
from memplan.job.zero import Zero
from memplan.report.documents import schema
from tests.emit.setups import predictions, setup, setups

SCHEMA = schema("setup")
OF_JOB = SCHEMA["$defs"]["JobSpec"]["properties"]
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
names = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1).filter(lambda name: name != ".")
targets = st.one_of(
    st.builds(FileTarget, path=names.map(Path), factory=st.none() | names),
    st.builds(ModuleTarget, module=names, factory=names),
    st.builds(HubTarget, location=names),
    st.builds(PresetTarget, name=names),
)
inputs = st.lists(
    st.builds(InputSpec, name=names, dtype=names, dims=st.lists(st.sampled_from(["B", "S", 0, 7])).map(tuple))
).map(tuple)


@given(made=setups, target=targets, given_inputs=inputs)
def test_what_is_written_is_read_back(made: Setup, target: Any, given_inputs: Any) -> None:
    job = replace(made.job, target=target, inputs=given_inputs, provenance={"batch_size": "--batch-size"})
    found = read_setup(write_setup(replace(made, job=job)))
    assert found == replace(made, job=replace(job, provenance={}))


@given(made=setups, target=targets)
def test_what_is_written_obeys_the_schema(made: Setup, target: Any) -> None:
    VALIDATOR.validate(json.loads(write_setup(replace(made, job=replace(made.job, target=target)))))


def test_a_file_holds_every_field_of_a_job_but_where_it_came_from() -> None:
    held = set(json.loads(write_setup(setup()))["job"])
    # Half a model is advice, not a way to run the job.
    assert held == {field.name for field in fields(JobSpec)} - {"provenance", "halved", "few_micro_batches"}
    assert held == set(OF_JOB)


def test_every_setting_of_deepspeed_has_a_key_and_is_in_the_schema() -> None:
    names = {field.name for field in fields(Zero)}
    assert names == set(ZERO_KEYS) == set(SCHEMA["$defs"]["Zero"]["properties"])


def test_what_a_file_leaves_out_is_the_default() -> None:
    content = json.loads(write_setup(setup()))
    content["job"] = {"target": {"preset": "gpt2"}}
    assert read_setup(json.dumps(content)).job == JobSpec(target=PresetTarget(name="gpt2"))


WRONG = {
    ("job", "batch_size"): (0, "job.batch_size: expected a whole number of at least 1"),
    ("job", "seq_len"): (True, "job.seq_len: expected a whole number"),
    ("job", "precision"): ("bf8", "job.precision: expected one of"),
    ("job", "clip_grad_norm"): (0, "job.clip_grad_norm: expected a number above 0"),
    ("job", "parallel"): ("fsdp=x", "job.parallel: fsdp must be a whole number"),
    ("job", "target"): ({"preset": "a", "hf": "b"}, "job.target: expected an object with one of"),
    ("job", "lora"): ({"rank": 0, "targets": "all", "x": 1}, "job.lora.rank: expected a whole number of at least 1"),
    ("job", "batch_sise"): (4, "job.batch_sise: unknown key; did you mean batch_size?"),
    ("job", "inputs"): (
        [{"name": "x", "dtype": "f", "dims": ["T"]}],
        "job.inputs[0].dims[0]: expected a whole number of at least 0 or one of B, S, found 'T'",
    ),
    ("predicted", "device_bytes"): (1.5, "predicted.device_bytes: expected a whole number of at least 0"),
    ("predicted", "step_seconds"): ("fast", "predicted.step_seconds: expected a number of at least 0"),
    ("gpu",): (None, "gpu: expected text, found nothing"),
    ("notes",): ("", "notes: unknown key"),
}


@pytest.mark.parametrize("place", WRONG, ids=".".join)
def test_what_is_wrong_is_told_with_its_place(place: tuple[str, ...]) -> None:
    wrong, message = WRONG[place]
    content = json.loads(write_setup(setup()))
    section = content
    for key in place[:-1]:
        section = section[key]
    section[place[-1]] = wrong
    with pytest.raises(UsageError) as raised:
        read_setup(json.dumps(content), "setup.json")
    assert message in raised.value.what
    assert raised.value.where == "setup.json"
    if place[-1] not in {"parallel", "step_seconds"}:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(content, SCHEMA)


def test_everything_wrong_is_told_at_once() -> None:
    content = json.loads(write_setup(setup()))
    for place, (wrong, _) in WRONG.items():
        section = content
        for key in place[:-1]:
            section = section[key]
        section[place[-1]] = deepcopy(wrong)
    with pytest.raises(UsageError) as raised:
        read_setup(json.dumps(content))
    assert [message for _, message in WRONG.values() if message not in raised.value.what] == []


@pytest.mark.parametrize("key", ["job", "gpu", "predicted", "memplan_version"])
def test_what_must_be_there_is_missed(key: str) -> None:
    content = json.loads(write_setup(setup()))
    del content[key]
    with pytest.raises(UsageError, match=f"{key}: missing"):
        read_setup(json.dumps(content))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, SCHEMA)


@pytest.mark.parametrize("version", ["2.0", "20.1", "", 1, None])
def test_another_major_version_is_refused_before_anything_else(version: object) -> None:
    content = json.loads(write_setup(setup())) | {"schema_version": version, "later": 1}
    with pytest.raises(UsageError, match="is not read here") as raised:
        read_setup(json.dumps(content))
    assert "update memplan" in str(raised.value)


def test_a_later_minor_version_is_read() -> None:
    assert read_setup(write_setup(setup()).replace('"schema_version": "1.0"', '"schema_version": "1.7"')) == setup()


@pytest.mark.parametrize("text", ["", "[]", "{}", "nul", '{"format": "memplan"}', "[" * 10**5, '{"gpu": NaN}'])
def test_what_is_no_setup_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"no setup file|cannot be read"):
        read_setup(text)


def test_settings_of_deepspeed_go_with_deepspeed_alone() -> None:
    content = json.loads(write_setup(setup()))
    content["job"] |= {"zero": {"stage": 2}, "parallel": "zero3=8"}
    with pytest.raises(UsageError, match=r"job\.zero\.stage: 2 does not go with parallel zero3=8"):
        read_setup(json.dumps(content))


def test_a_plan_is_found_beside_the_setup(tmp_path: Path) -> None:
    (tmp_path / "setup.json").write_text(write_setup(setup(checkpoint="plan.json")))
    loaded = load_setup(tmp_path / "setup.json")
    assert loaded.job.checkpoint == str(tmp_path / "plan.json")
    assert setup_hash(loaded) == setup_hash(setup(checkpoint="plan.json"))


@given(made=setups, predicted=predictions)
def test_a_hash_tells_setups_apart(made: Setup, predicted: Any) -> None:
    other = replace(made, predicted=predicted)
    assert (setup_hash(made) == setup_hash(other)) == (made == other)
    assert setup_hash(made) != setup_hash(replace(made, job=replace(made.job, batch_size=made.job.batch_size + 1)))


@pytest.mark.parametrize("name", ["missing.json", "."])
def test_a_file_that_cannot_be_read_is_told(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load_setup(tmp_path / name)


def test_a_setup_is_of_this_memplan() -> None:
    made = setup()
    assert make_setup(made.job, made.gpu, made.predicted) == made
