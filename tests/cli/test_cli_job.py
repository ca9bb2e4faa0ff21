"""From words to a job: values, provenance, and every complaint at once."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memplan.job.adapters import Lora
from memplan.job.assumed import AssumedInteger
from memplan.job.limits import MAX_COUNT
from memplan.job.options import OPTIONS, OptionField
from memplan.job.parallel import Parallel
from memplan.job.spec import FileTarget, InputSpec, JobSpec

Run = Callable[..., int]

IN_A_FORM_OF_THEIR_OWN = {
    "assume": ("item@train.py:88=7", (AssumedInteger(place="train.py:88", number=7),)),
    "inputs": ("x=float32[B,3,224]", (InputSpec(name="x", dtype="float32", dims=("B", 3, 224)),)),
    "parallel": ("fsdp=8", Parallel(data="fsdp2", shards=8)),
    "lora": ("r=4", Lora(rank=4)),
    "checkpoint": ("full", "full"),
    "clip_grad_norm": ("1.5", 1.5),
    "loss": ("mse", "mse"),
}


def example(option: OptionField) -> tuple[tuple[str, ...], Any]:
    """The words of an option that is not the default, and their value."""
    if option.kind is bool:
        return (), True
    if option.kind is int:
        return ("7",), 7
    word, value = IN_A_FORM_OF_THEIR_OWN.get(option.name) or (option.choices[-1],) * 2
    return (word,), value


def test_without_options_a_job_has_the_defaults_of_the_spec(run: Run, library) -> None:
    assert run() == 0
    (spec,) = library.specs
    assert spec == JobSpec(target=FileTarget(path=Path("model.py")), provenance=spec.provenance)
    assert spec.provenance["target"] == "TARGET"
    assert {source for name, source in spec.provenance.items() if name != "target"} == {"default"}
    assert library.gpus == ["h100-80g"]
    assert library.timeouts == [600.0]


@pytest.mark.parametrize("option", OPTIONS.values(), ids=OPTIONS.keys())
def test_each_option_reaches_its_field_with_its_provenance(run: Run, library, option: OptionField) -> None:
    flag, (words, value), needs = f"--{option.called}", example(option), option.about.needs
    needed = (f"--{OPTIONS[needs.field].called}", needs.value or "3") if needs else ()
    assert run(flag, *words, *needed) == 0
    (spec,) = library.specs
    assert value not in (option.default, None)
    assert getattr(spec, option.name) == value
    assert spec.provenance[option.name] == flag
    assert {given for given in spec.provenance.values() if given not in ("default", "TARGET")} == {flag, *needed[:1]}


def test_a_given_value_that_equals_the_default_is_still_given(run: Run, library) -> None:
    assert run("--batch-size", "1") == 0
    assert library.specs[0].provenance["batch_size"] == "--batch-size"


def test_a_gpu_named_twice_is_estimated_once(run: Run, library) -> None:
    assert run("--gpu", "h100-80g", "--gpu", "cpu") == 0
    assert library.gpus == ["h100-80g", "cpu"]


@pytest.mark.parametrize("option", ["--batch-size", "--seq-len", "--grad-accum", "--max-new-tokens"])
@pytest.mark.parametrize("value", [0, -1, MAX_COUNT + 1, 10**30])
def test_counts_out_of_range_are_refused(run: Run, library, capsys, option: str, value: int) -> None:
    assert run(option, str(value)) == 2
    assert f"{option} must be between 1 and 2147483648, not {value}" in capsys.readouterr().err
    assert not library.specs


@pytest.mark.parametrize("option", ["--batch-size", "--seq-len", "--grad-accum", "--max-new-tokens"])
@pytest.mark.parametrize("value", [1, MAX_COUNT])
def test_the_ends_of_the_range_are_accepted(run: Run, option: str, value: int) -> None:
    assert run(option, str(value)) == 0


@pytest.mark.parametrize(
    ("option", "needed"), [("--prefetch", "--data-workers"), ("--kv-block-size", "--mode generate")]
)
def test_an_option_without_the_one_that_it_is_for_is_refused(run: Run, capsys, option: str, needed: str) -> None:
    assert run(option, "4") == 2
    assert f"give {needed} too" in capsys.readouterr().err
    more = needed.split() if " " in needed else [needed, "2"]
    assert run(option, "4", *more) == 0


@pytest.mark.parametrize("workers", ["0", "3"])
def test_no_workers_is_a_number_of_them(run: Run, library, workers: str) -> None:
    assert run("--data-workers", workers, "--pin-memory") == 0
    assert (library.specs[0].data_workers, library.specs[0].pin_memory) == (int(workers), True)
    assert run("--data-workers", "-1") == 2


def test_words_of_other_libraries_are_taken(run: Run, library) -> None:
    assert run("--precision", "bfloat16", "--optimizer", "AdamW8bit") == 0
    assert (library.specs[-1].precision, library.specs[-1].optimizer) == ("bf16", "adamw-8bit")


def test_a_word_that_is_nearly_one_is_answered_with_it(run: Run, capsys) -> None:
    assert run("--optimizer", "adamw-8bits") == 2
    assert "did you mean adamw-8bit?" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--clip-grad-norm", "--timeout"])
@pytest.mark.parametrize("value", ["nan", "-1", "0", "-inf"])
def test_numbers_that_are_none_are_refused(run: Run, capsys, option: str, value: str) -> None:
    assert run(option, value) == 2
    assert option in capsys.readouterr().err


def test_an_endless_timeout_is_refused_and_an_endless_norm_is_not(run: Run, library) -> None:
    assert run("--timeout", "inf") == 2
    assert run("--clip-grad-norm", "inf") == 0
    assert library.specs[-1].clip_grad_norm == math.inf


@pytest.mark.parametrize("option", ["--precision", "--optimizer", "--optimizer-impl", "--attention", "--mode",
                                    "--data-dependent", "--fail-on", "--format"])  # fmt: skip
@pytest.mark.parametrize("word", ["fancy", ""])
def test_a_word_that_is_no_choice_is_refused_with_the_choices(run: Run, capsys, option: str, word: str) -> None:
    assert run(option, word) == 2
    told = capsys.readouterr()
    assert f"{option} must be one of " in told.err
    assert f"not '{word}'" in told.err
    assert told.out == ""


@pytest.mark.parametrize(
    "words",
    [
        ("--batch-size", "many"),
        ("--batch-size", "nan"),
        ("--batch-size", "1.5"),
        ("--gpu", "no-such-gpu"),
        ("--profile-dir", "no-such-folder"),
        ("--checkpoint", "no-such-file.json"),
        ("--input", "x=float32"),
        ("--input", "x=float32[B]", "--input", "x=float32[B]"),
        ("--format", "json=no-such-folder/report.json"),
        ("--format", "json="),
        ("--format", "text", "--json"),
        ("--no-such-option",),
    ],
)
def test_wrong_words_exit_2_before_anything_is_traced(run: Run, library, capsys, words: tuple[str, ...]) -> None:
    assert run(*words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    assert captured.err.strip()
    assert not library.specs


def test_all_complaints_come_at_once(run: Run, capsys) -> None:
    assert run("--batch-size", "0", "--gpu", "no-such-gpu", "--mode", "fly", "-f", "pdf", "--timeout", "nan") == 2
    error = capsys.readouterr().err
    for word in ("--batch-size", "no-such-gpu", "'fly'", "'pdf'", "--timeout"):
        assert word in error
