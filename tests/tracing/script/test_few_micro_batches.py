"""Steps of a Trainer that accumulate: with a few of their micro-batches and with all of them."""

from pathlib import Path

import pytest

from memplan.hardware.catalog import load_profile
from memplan.job.load import load_source
from memplan.job.spec import JobSpec, ScriptTarget
from memplan.measure.local import estimate_here
from memplan.tracing.records import DeviceTraits, Trace
from memplan.tracing.run import trace_job
from memplan.tracing.turns import turns_repeat
from tests.support.libraries import library

transformers, accelerate = library("transformers"), library("accelerate")

PROGRAM = """
import sys
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

accumulated, longest = map(int, sys.argv[1:])
model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=32, n_head=2, vocab_size=100, n_positions=64))
lengths = [8 + row % longest for row in range(500)]
rows = [{"input_ids": [1] * length, "labels": [1] * length} for length in lengths]
arguments = TrainingArguments("out", per_device_train_batch_size=1, gradient_accumulation_steps=accumulated,
                              train_sampling_strategy="sequential", report_to="none", bf16=True)
Trainer(model, arguments, train_dataset=rows).train()
"""


def program(folder: Path, *arguments: str, no_fold: bool = False) -> JobSpec:
    path = folder / "train.py"
    path.write_text(PROGRAM)
    return JobSpec(target=ScriptTarget(path=path, arguments=arguments), no_fold=no_fold)


def traced(folder: Path, *arguments: str) -> Trace:
    spec = program(folder, *arguments)
    return trace_job(lambda: load_source(spec), spec, DeviceTraits(kind="cuda"))


def test_micro_batches_between_the_third_and_the_last_are_left_out(tmp_path: Path) -> None:
    trace = traced(tmp_path, "9", "1")
    assert [turn.further for turn in trace.turns] == [9 - 3 - 1] * len(trace.steps)
    assert turns_repeat(trace)


@pytest.mark.parametrize(("accumulated", "longest"), [("4", "1"), ("9", "2")])
def test_few_micro_batches_and_others_are_traced_in_full(accumulated: str, longest: str, tmp_path: Path) -> None:
    assert not traced(tmp_path, accumulated, longest).turns


def test_what_is_left_out_changes_no_figure(tmp_path: Path) -> None:
    few, all_ = (
        estimate_here(program(tmp_path, "9", "1", no_fold=no_fold), [load_profile("h100-80g")], advice=False)[0]
        for no_fold in (False, True)
    )
    assert few.peak == all_.peak
    assert few.breakdown == all_.breakdown
    assert few.flops_per_step == all_.flops_per_step
