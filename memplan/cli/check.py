"""From what was typed to a ``JobSpec``: every field checked, every complaint at once, every origin kept."""

import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from memplan.cli import console
from memplan.cli.groups import DrawnOptions, JobOptions
from memplan.cli.options import CHOICES, flag
from memplan.errors import MemplanError, UsageError, several
from memplan.job import limits
from memplan.job.options import OPTIONS, OptionField, spelled
from memplan.job.spec import FileKind, JobSpec, ScriptTarget
from memplan.units import Bytes, parse_size

if TYPE_CHECKING:
    from memplan.job.config_files.read import FileSettings
    from memplan.simulate.lengths import Distribution


def job_spec(target: str | Sequence[str], options: JobOptions, problems: "Problems") -> JobSpec:
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


MOST_STEPS = 1_000_000
"""Most steps that are played: figures of every step are kept."""


def lengths(spec: JobSpec, options: JobOptions, drawn: DrawnOptions, problems: "Problems") -> None:
    """Refuse drawn lengths of a job that says itself how long its sequences are."""
    if drawn.seq_len_dist is None:
        return
    problems.of(no_program, spec, "its own arguments say how long sequences are: leave --seq-len-dist out")
    if options.given.get("seq_len") is not None:
        problems.add("--seq-len and --seq-len-dist both say how long sequences are; give one")


def distribution(drawn: DrawnOptions, problems: "Problems") -> "Distribution":
    """Where the lengths of steps come from; it means something only if there are no problems."""
    from memplan.simulate.lengths import parse_distribution

    if not 1 <= drawn.steps <= MOST_STEPS:
        problems.add(f"--steps must be between 1 and {MOST_STEPS}, not {drawn.steps}")
    found: Distribution = problems.of(parse_distribution, drawn.seq_len_dist or "fixed")
    return found


TARGET_FILE = "memplan init SCRIPT --target-file FILE writes a target file from the program's own code"
"""What to do where a program will not do."""


def _read(option: OptionField, value: Any, problems: "Problems") -> Any:
    """Return the value of an option that was typed; None, and a problem noted, where it cannot be read."""
    parse = option.parser()
    if parse is None:
        return spelled(value, option.choices) if option.choices and isinstance(value, str) else value
    if isinstance(value, list):
        return tuple(item for text in value if (item := problems.of(parse, text)) is not None)
    return problems.of(parse, value)


def _of_files(paths: Iterable[Path], problems: "Problems") -> "FileSettings":
    """What configuration files say of a job; what they leave unread is told at once."""
    from memplan.job.config_files.read import merge, read_config

    read = [problems.of(read_config, path) for path in paths]
    found = merge(file for file in read if file is not None)
    console.tell("".join(f"note: {note}\n" for note in found.notes))
    return found


def size(where: str, text: str | None) -> Bytes | None:
    """Read a number of bytes that may be missing.

    Raises:
        UsageError: It is none.
    """
    try:
        return None if text is None else parse_size(text)
    except ValueError as error:
        raise UsageError(str(error), where=where) from error


def wrong_word(flag: str, word: str | None, known: Sequence[str]) -> Iterator[str]:
    """Complain of an option that takes some words and was given another one."""
    if word is not None and word not in known:
        yield f"{flag} must be one of {', '.join(known)}, not '{word}'"


def wrong_file(flag: str, file: Path | None) -> Iterator[str]:
    """Complain of a file that cannot be written."""
    if file is not None and (file.is_dir() or not file.parent.is_dir()):
        yield f"{flag}: cannot write a file '{file}'"


def wrong_seconds(flag: str, seconds: float) -> Iterator[str]:
    """Complain of a time limit that is none."""
    if not 0 < seconds < math.inf:
        yield f"{flag} must be a number of seconds above 0, not {seconds}"


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
            raise several(self._whats, hint="; ".join(dict.fromkeys(self._hints)) or None)


def _quoted(word: object, choices: Sequence[str]) -> str:
    """A wrong word, and the choice that it resembles."""
    nearest = difflib.get_close_matches(str(word).lower(), choices, n=1, cutoff=0.6)
    return f"'{word}'" + (f": did you mean {nearest[0]}?" if nearest else "")


def wrong_values(given: Mapping[str, Any]) -> list[str]:
    """A sentence for each option whose value cannot be."""
    problems = [
        f"{flag(name)} must be one of {', '.join(CHOICES[name])}, not {_quoted(given[name], CHOICES[name])}"
        for name in CHOICES
        if name in given and given[name] not in CHOICES[name]
    ]
    problems += limits.wrong_values(given, flag)
    return [*problems, *(wrong_seconds("--timeout", given["timeout"]) if "timeout" in given else ())]
