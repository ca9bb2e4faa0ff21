"""The keys of a project file, and what reads the value of each. Options of ``memplan estimate`` keep their names."""

from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from memplan.job.options import OPTIONS, OptionField
from memplan.job.setup_values import JOB as FIELDS
from memplan.job.strict import Reader, choice, each, record, switch, text
from memplan.job.target import parse_target
from memplan.project import values
from memplan.project.records import FailOn

_KEYS = {name: option.called for name, option in OPTIONS.items()}
REQUIRED = frozenset({"name", "target"})
"""Of a job, but that a program stands for a target."""
PROGRAM = frozenset({"script", "args"})
"""Keys that name a program and its arguments instead of a target."""


def key_of(field: str) -> str:
    """What a field of ``JobSpec`` is called in a project file: as the option, without dashes in front."""
    return _KEYS.get(field, field.replace("_", "-"))


def field_of(key: str) -> str:
    """The field of a record that a key sets."""
    return next((field for field, other in _KEYS.items() if other == key), key.replace("-", "_"))


POLICY: Mapping[str, Reader] = {
    "max-peak": values.size.described("Device peak at most, as 72GiB"),
    "min-headroom": values.headroom.described("Usable memory left at least, as 5% of it, 2GiB, or balanced"),
    "max-increase": values.amount.described("Growth over the baseline at most, as 2% or 1GiB"),
    "max-fragmentation": values.share.described("Share of reserved bytes that nobody asked for, at most, as 10%"),
    "fail-on": choice(get_args(FailOn)).described("The verdict at which a job fails, or a worse one"),
    "informational": switch.described("Findings are told and never fail the gate"),
    "message": values.words.described("Told with every failure"),
}
"""What a job may need."""
RUN: Mapping[str, Reader] = {
    "gpus": values.some.described("GPU profiles, as 'memplan gpus' lists them"),
    "timeout": values.seconds.described("Time that the target's code may take, as 10m; a number is seconds"),
    "alloc-conf": values.allocator.described("PYTORCH_CUDA_ALLOC_CONF of the run"),
}
"""On what and how it is traced."""
SHARED = {**RUN, **POLICY}
"""Keys that stand in a job, or at the top for all of them."""
ONCE: Mapping[str, Reader] = {
    "baseline": text.described("Where the accepted figures lie, relative to this file"),
    "profile-dirs": each(text).described("Folders of further GPU profiles"),
}
"""Keys that stand at the top alone."""
TOP = {**ONCE, **SHARED}
"""Keys at the top, beside the jobs; each has its variable of the environment."""
_CONFIGS = "Configuration files of DeepSpeed, accelerate, axolotl or transformers, or setups"


def job_keys(folder: Path = Path()) -> Mapping[str, Reader]:
    """Every key of a job.

    Args:
        folder: The project file's, as it is found from here: relative paths begin there.
    """
    target = values.parsed(lambda typed: parse_target(typed, folder), "target")
    return {
        "name": values.one_line.described("What reports and baselines call the job"),
        "target": target.described("model.py:factory, package.module:factory, hf:DIR or preset:NAME"),
        "script": text.described("Instead of a target, a program that trains: train.py, or torchrun … train.py"),
        "args": each(text).described("Its arguments"),
        "config": values.paths(folder).described(_CONFIGS),
        **SHARED,
        **{option.called: _reader(option, folder) for option in OPTIONS.values()},
        "checkpoint": FIELDS["checkpoint"].then(lambda plan: plan if plan in ("none", "full") else str(folder / plan)),
    }


def _reader(option: OptionField, folder: Path) -> Reader:
    """Return the reader of setups, but one of text where the command takes text of a form of its own."""
    parse = option.parser(folder)
    if parse is None:
        return FIELDS[option.name]
    read = values.parsed(parse, option.called)
    return (read if option.item is option.kind else each(read)).described(option.summary)


_JOBS = each(record(job_keys(), REQUIRED - {"target"}))
DOCUMENT = record({**TOP, "job": Reader(_JOBS.read, {**_JOBS.schema, "minItems": 1})}, frozenset({"job"})).document(
    "memplan.toml 1.0, and [tool.memplan] of pyproject.toml",
    "Keys of a job that stand at the top are defaults for all jobs.",
)
"""What editors are told of a whole file; ``memplan.project.read`` reads it."""
