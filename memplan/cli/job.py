"""From what was typed to a ``JobSpec``: every field checked, every origin kept."""

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from memplan.cli import console
from memplan.cli.check import Problems, wrong_values
from memplan.cli.groups import DrawnOptions, JobOptions
from memplan.cli.options import flag
from memplan.errors import UsageError
from memplan.job.options import OPTIONS, OptionField, spelled
from memplan.job.spec import FileKind, JobSpec, ScriptTarget

if TYPE_CHECKING:
    from memplan.hardware.profile import GpuProfile
    from memplan.job.config_files.read import FileSettings

TARGET_FILE = "memplan init SCRIPT --target-file FILE writes a target file from the program's own code"
"""What to do where a program will not do."""


def job_spec(target: str | Sequence[str], options: JobOptions, problems: Problems) -> JobSpec:
    """The job that a target and its options ask for.

    Args:
        target: The target as typed; as words where a program's arguments may follow it.
        options: What was typed of the job; its time limit is checked too.
        problems: Takes what is wrong; the result means something only if that is nothing.

    Returns:
        The job, with the provenance of every field.

    Raises:
        EstimateError: The target's file is not valid Python.
    """
    from memplan.job.config_files.read import with_given
    from memplan.job.parallel import ALONE
    from memplan.job.program import decided_by, parse_words
    from memplan.job.target import check_syntax

    given = {name: _read(OPTIONS[name], value, problems) for name, value in options.given.items()}
    kind = {"file_kind": options.file_kind} if options.file_kind else {}
    problems.add(*wrong_values(given | {"timeout": options.timeout} | kind))
    files = _of_files(options.config or (), problems)
    values, missing = with_given(files, given)
    problems.add(*missing)
    provenance = {**dict.fromkeys(OPTIONS, "default"), **files.provenance, **{name: flag(name) for name in given}}
    words = [target] if isinstance(target, str) else target
    asked = problems.of(partial(parse_words, kind=cast("FileKind | None", options.file_kind)), words)
    if asked is not None:
        check_syntax(asked.target)
        decided = decided_by(asked.target, values)
        problems.add(*(f"{flag(name)} {reason} (its own arguments follow --)" for name, reason in decided))
    if asked is not None and asked.parallel != ALONE:
        values["parallel"] = asked.parallel
    return JobSpec(target=asked and asked.target, provenance=provenance | {"target": "TARGET"}, **values)


def as_most_run_it(
    spec: JobSpec, options: JobOptions, profiles: "Iterable[GpuProfile | None]", *, by_trainer: bool = True
) -> JobSpec:
    """The job as most people run it where nobody said how; files that say how (``--config``) say it by silence, too.

    Args:
        spec: The job.
        options: What was typed of it.
        profiles: The cards that it is for, as far as they are known.
        by_trainer: May transformers' Trainer train it?
    """
    from memplan.hardware.profile import all_have
    from memplan.job.as_loaded import as_loaded
    from memplan.job.own_batch import with_own_batch

    spec = with_own_batch(spec)
    if options.config:
        return spec
    has_bfloat16 = all_have(filter(None, profiles), "bfloat16")
    found = as_loaded(spec, has_bfloat16=has_bfloat16)
    if by_trainer or found.loop == spec.loop:
        return found
    console.tell("note: this is for a loop written by hand (--loop plain), not for Trainer\n")
    return as_loaded(spec, has_bfloat16=has_bfloat16, by_trainer=False)


def no_program(spec: JobSpec, why: str) -> None:
    """Refuse a program where a command wants a target.

    Args:
        spec: The job.
        why: Why it cannot do it with a program.

    Raises:
        UsageError: The target is one.
    """
    if isinstance(spec.target, ScriptTarget):
        raise UsageError(f"{spec.target.name} is a program: {why}", hint=TARGET_FILE)


def lengths_of_job(spec: JobSpec, options: JobOptions, drawn: DrawnOptions, problems: Problems) -> None:
    """Refuse drawn lengths of a job that says itself how long its sequences are."""
    if drawn.seq_len_dist is None:
        return
    problems.of(no_program, spec, "its own arguments say how long sequences are: leave --seq-len-dist out")
    if options.given.get("seq_len") is not None:
        problems.add("--seq-len and --seq-len-dist both say how long sequences are; give one")


def _read(option: OptionField, value: Any, problems: Problems) -> Any:
    """Return the value of an option that was typed; None, and a problem noted, where it cannot be read."""
    parse = option.parser()
    if parse is None:
        return spelled(value, option.choices) if option.choices and isinstance(value, str) else value
    if isinstance(value, list):
        return tuple(item for text in value if (item := problems.of(parse, text)) is not None)
    return problems.of(parse, value)


def _of_files(paths: Iterable[Path], problems: Problems) -> "FileSettings":
    """What configuration files say of a job; what they leave unread is told at once."""
    from memplan.job.config_files.read import merge, read_config

    read = [problems.of(read_config, path) for path in paths]
    found = merge(file for file in read if file is not None)
    console.tell("".join(f"note: {note}\n" for note in found.notes))
    return found
