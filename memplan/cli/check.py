"""From what was typed to a ``JobSpec``: every field checked, every complaint at once, every origin kept."""

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from memplan.cli import console
from memplan.cli.groups import JOB_FIELDS, JobOptions
from memplan.cli.options import CHOICES, flag
from memplan.errors import MemplanError, UsageError
from memplan.job.spec import InputSpec, JobSpec

MAX_COUNT = 2**31
"""Largest accepted batch size, sequence length and the like: beyond it PyTorch's 32-bit indexing ends."""
_COUNTS = ("batch_size", "seq_len", "grad_accum", "loss_chunks", "max_new_tokens")


def job_spec(target: str, options: JobOptions, problems: "Problems") -> JobSpec:
    """The job that a target and its options ask for.

    Args:
        target: The target as typed.
        options: What was typed of the job; its time limit is checked too.
        problems: Takes what is wrong; the result means something only if that is nothing.

    Returns:
        The job, with the provenance of every field.
    """
    from memplan.job.adapters import parse_lora
    from memplan.job.inputs import parse_input
    from memplan.job.parallel import parse_parallel
    from memplan.job.target import parse_target

    given = options.given()
    inputs = tuple(problems.of(parse_input, text) for text in given.get("inputs", ()))
    readers = {"parallel": parse_parallel, "lora": parse_lora}
    given |= {name: problems.of(read, given[name]) for name, read in readers.items() if name in given}
    problems.add(*wrong_values(given | {"timeout": options.timeout}), *_repeated(inputs))
    given |= {"inputs": inputs} if inputs else {}
    settings, provenance = _of_files(options.config or (), given, problems)
    provenance = dict.fromkeys(JOB_FIELDS, "default") | provenance | {name: flag(name) for name in given}
    parsed_target = problems.of(parse_target, target)
    values = _agreeing(settings | given)
    return JobSpec(target=parsed_target, provenance=provenance | {"target": "TARGET"}, **values)


def _of_files(
    paths: Iterable[Path], typed: Mapping[str, Any], problems: "Problems"
) -> tuple[dict[str, Any], dict[str, str]]:
    """What configuration files say of a job, later ones first; what they leave open has to be typed."""
    from memplan.job.config_files.read import read_config

    values: dict[str, Any] = {}
    provenance: dict[str, str] = {}
    lacks: dict[str, str] = {}
    for path in paths:
        found = problems.of(read_config, path)
        if found is None:
            continue
        console.write_plain("".join(f"note: {note}\n" for note in found.notes), sys.stderr)
        known = values.keys() & found.lacks.keys()
        values |= {name: value for name, value in found.values.items() if name not in known}
        provenance |= {name: place for name, place in found.provenance.items() if name not in known}
        lacks |= {name: what for name, what in found.lacks.items() if name not in known}
    problems.add(*(what for name, what in lacks.items() if name not in typed))
    return values, provenance


def _agreeing(values: dict[str, Any]) -> dict[str, Any]:
    """With DeepSpeed's settings where DeepSpeed is what shards, for the stage that it has."""
    zero, parallel = values.get("zero"), values.get("parallel")
    if zero is None or parallel is None:
        return values
    stage = parallel.data.removeprefix("zero")
    return values | {"zero": replace(zero, stage=int(stage)) if stage.isdigit() else None}


class Problems:
    """Collects complaints, so that the user sees all of them in one go."""

    def __init__(self) -> None:
        self._whats: list[str] = []
        self._hints: list[str] = []

    def add(self, *whats: str) -> None:
        """Note complaints."""
        self._whats += whats

    def of(self, parse: Callable[..., Any], *arguments: Any) -> Any:
        """What the parser returns; None, and a complaint noted, where it raises a usage error."""
        try:
            return parse(*arguments)
        except MemplanError as error:
            self.add(f"{error.where}: {error.what}" if error.where else error.what)
            self._hints += [error.hint] if error.hint else []
            return None

    def raise_if_any(self) -> None:
        """Complain about everything at once."""
        if self._whats:
            listed = "\n  - ".join(["several things are wrong:", *self._whats])
            hint = "; ".join(dict.fromkeys(self._hints)) or None
            raise UsageError(listed if len(self._whats) > 1 else self._whats[0], hint=hint)


def wrong_values(given: Mapping[str, Any]) -> list[str]:
    """A sentence for each option whose value cannot be."""
    problems = [
        f"{flag(name)} must be one of {', '.join(CHOICES[name])}, not '{given[name]}'"
        for name in CHOICES
        if name in given and given[name] not in CHOICES[name]
    ]
    problems += [
        f"{flag(name)} must be between 1 and {MAX_COUNT}, not {given[name]}"
        for name in _COUNTS
        if name in given and not 1 <= given[name] <= MAX_COUNT
    ]
    # NaN fails every comparison, so the conditions say what is right.
    if "clip_grad_norm" in given and not given["clip_grad_norm"] > 0:
        problems.append(f"--clip-grad-norm must be a number above 0, not {given['clip_grad_norm']}")
    if "timeout" in given and not 0 < given["timeout"] < math.inf:
        problems.append(f"--timeout must be a number of seconds above 0, not {given['timeout']}")
    checkpoint = given.get("checkpoint", "none")
    if checkpoint not in ("none", "full") and not Path(checkpoint).is_file():
        problems.append(f"--checkpoint must be none, full or a plan file; there is no file '{checkpoint}'")
    return problems


def _repeated(inputs: Iterable[InputSpec | None]) -> list[str]:
    names = [given.name for given in inputs if given is not None]
    return [f"--input {name} is given twice" for name in dict.fromkeys(names) if names.count(name) > 1]
