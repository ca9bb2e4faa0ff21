"""What the values of a job may be beyond their types, whoever gives them: options of a command, keys of a file."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from memplan.job.option import JobOption, Needed
from memplan.job.options import OPTIONS
from memplan.job.spec import InputSpec

MAX_COUNT = 2**31
"""Largest accepted batch size, sequence length and the like: beyond it PyTorch's 32-bit indexing ends."""


def wrong_values(given: Mapping[str, Any], called: Callable[[str], str]) -> Iterator[str]:
    """A sentence for each value that cannot be."""
    for name, option in OPTIONS.items():
        if given.get(name) is not None:
            yield from _out_of_range(option.about, called(name), given[name])
            if option.about.needs is not None and not _has(option.about.needs, given):
                needed, value = option.about.needs, option.about.needs.value or ""
                yield f"{called(name)} {needed.reason}: give {f'{called(needed.field)} {value}'.strip()} too"
    checkpoint = given.get("checkpoint", "none")
    if checkpoint not in ("none", "full") and not Path(checkpoint).is_file():
        yield f"{called('checkpoint')} must be none, full or a plan file; there is no file '{checkpoint}'"
    yield from _repeated(given.get("inputs", ()), called("inputs"))


def _out_of_range(about: JobOption, called: str, value: Any) -> Iterator[str]:
    # NaN fails every comparison, so the conditions say what is right.
    if about.least is not None and not about.least <= value <= MAX_COUNT:
        yield f"{called} must be between {about.least} and {MAX_COUNT}, not {value}"
    if about.above is not None and not value > about.above:
        yield f"{called} must be a number above {about.above:g}, not {value}"


def _has(needed: Needed, given: Mapping[str, Any]) -> bool:
    other = given.get(needed.field)
    return bool(other) if needed.value is None else other == needed.value


def _repeated(inputs: Iterable[InputSpec], called: str) -> Iterator[str]:
    names = [given.name for given in inputs]
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            yield f"{called} {name} is given twice"
