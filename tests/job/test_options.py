"""What is said of a job's options at the fields of ``JobSpec`` holds together."""

from dataclasses import fields
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

from memplan.emit.words import left_out
from memplan.job.limits import wrong_values
from memplan.job.options import OPTIONS, SPELLINGS, OptionField, spelled
from memplan.job.parallel import Parallel
from memplan.job.setup_file import JOB
from memplan.job.spec import JobSpec, PresetTarget

DOCS = Path(__file__).parents[2] / "docs"
OF_MEMPLAN = (bool, int, float, Parallel)
"""Types whose values are numbers and words of memplan's own."""
every_option = pytest.mark.parametrize("option", OPTIONS.values(), ids=OPTIONS.keys())


def test_every_field_that_people_give_is_an_option() -> None:
    assert {field.name for field in fields(JobSpec)} - OPTIONS.keys() == {
        "target", "zero", "halved", "few_micro_batches", "provenance"
    }  # fmt: skip


@every_option
def test_none_is_the_default_wherever_it_is_a_value(option: OptionField) -> None:
    assert (type(None) in get_args(get_type_hints(JobSpec)[option.name])) == (option.default is None)


@every_option
def test_a_switch_is_off_unless_it_is_typed(option: OptionField) -> None:
    assert option.kind is not bool or option.default is False


@every_option
def test_text_that_may_name_code_is_hidden_in_redacted_reports(option: OptionField) -> None:
    is_text = option.kind not in OF_MEMPLAN and get_origin(option.kind) is not Literal
    assert option.about.names_code == is_text


@every_option
def test_pages_and_options_that_are_named_exist(option: OptionField) -> None:
    about = option.about
    assert not about.page or (DOCS / about.page.partition("#")[0]).is_file()
    assert about.needs is None or about.needs.field in OPTIONS


@every_option
def test_the_default_is_within_the_limits_and_is_read_from_a_file(option: OptionField) -> None:
    if isinstance(option.default, bool | int | float | str):
        assert not list(wrong_values({option.name: option.default}, str))
        plain = {"target": {"preset": "gpt2"}, option.name: option.default}
        assert getattr(JOB.read(plain), option.name) == option.default


def test_a_framework_is_told_what_to_do_about_every_option_that_changes_training() -> None:
    told = {name for name, option in OPTIONS.items() if option.about.by_hand}
    assert OPTIONS.keys() - told == {
        "allow_network", "trust_remote_code", "no_fold", "inputs", "mode", "max_new_tokens", "kv_block_size",
        "data_dependent", "assume",
    }  # fmt: skip
    job = JobSpec(target=PresetTarget(name="gpt2"), checkpoint="plan.json", parallel=Parallel(data="ddp", replicas=4))
    assert [*left_out(job, frozenset({"checkpoint", "parallel", "seq_len"}))] == [
        "checkpoint plan.json: call memplan.apply(model, 'plan.json') once the model is built",
        "parallel ddp=4: start 4 processes",
    ]


@every_option
def test_a_word_is_known_however_it_is_spelled(option: OptionField) -> None:
    for word in option.choices:
        assert {spelled(each, option.choices) for each in (word, word.upper(), word.replace("-", "_"))} == {word}
    assert spelled("fancy", option.choices) == "fancy"


def test_spellings_are_of_words_that_some_option_takes() -> None:
    words = {word for option in OPTIONS.values() for word in option.choices}
    assert set(SPELLINGS.values()) <= words
    assert not SPELLINGS.keys() & words
