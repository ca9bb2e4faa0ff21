"""The keys of a project file, and what reads the value of each. Options of ``memplan estimate`` keep their names."""

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

from memplan.errors import MemplanError
from memplan.job.options import OPTIONS, OptionField
from memplan.job.setup_values import JOB as FIELDS
from memplan.job.strict import Reader, choice, each, refuse, switch, text
from memplan.job.target import parse_target
from memplan.job.typed import parser_of
from memplan.project.records import Amount, FailOn
from memplan.replay.conf import parse_conf
from memplan.units import Bytes, parse_seconds, parse_size

_KEYS = {name: option.called for name, option in OPTIONS.items()}
_SHARE = re.compile(r"\s*(?P<percent>\d+(?:\.\d*)?|\.\d+)\s*%\s*")


def key_of(field: str) -> str:
    """What a field of ``JobSpec`` is called in a project file: as the option, without dashes in front."""
    return _KEYS.get(field, field.replace("_", "-"))


def field_of(key: str) -> str:
    """The field of a record that a key sets."""
    return next((field for field, other in _KEYS.items() if other == key), key.replace("-", "_"))


def _parsed(parse: Callable[[str], Any], key: str) -> Reader:
    """Reads text with what parses an option; what that says of the option is said of the key."""

    def read(content: object) -> Any:
        try:
            return parse(text(content))
        except MemplanError as error:
            raise ValueError(in_one_line(error).removeprefix(f"--{key} ")) from error

    return read


def in_one_line(error: MemplanError) -> str:
    """What happened, where and what to do."""
    where = f" ({error.where.removeprefix('--')})" if error.where else ""
    return f"{error.what}{where}" + (f"; {error.hint}" if error.hint else "")


def _line(content: object) -> str:
    if not isinstance(content, str) or not content.strip() or not content.isprintable():
        refuse("text of one line", content)
    return content


def _words(content: object) -> str:
    if not isinstance(content, str):
        refuse("text", content)
    return content


def _size(content: object) -> Bytes:
    # A bare number would be bytes, and is never meant so.
    if not isinstance(content, str):
        refuse("a size such as '72GiB'", content)
    size = parse_size(content)
    if not size:
        refuse("a size above 0", content)
    return size


def _amount(content: object) -> Amount:
    if not isinstance(content, str):
        refuse("a size such as '2GiB' or a share such as '5%'", content)
    if (share := _SHARE.fullmatch(content)) is not None:
        return Amount(share=float(share["percent"]) / 100)
    return Amount(bytes=parse_size(content))


def _headroom(content: object) -> Amount:
    amount = _amount(content)
    if amount.share is not None and amount.share >= 1:
        refuse("a share below 100%", content)
    return amount


def _seconds(content: object) -> float:
    if isinstance(content, bool) or not isinstance(content, str | int | float):
        refuse("a time such as '10m', or seconds", content)
    seconds = parse_seconds(content) if isinstance(content, str) else float(content)
    if not 0 < seconds < math.inf:
        refuse("a time above 0", content)
    return seconds


def _conf(content: object) -> str:
    conf = _words(content)
    try:
        parse_conf(conf)
    except MemplanError as error:
        raise ValueError(in_one_line(error)) from error
    return conf


def _some(content: object) -> tuple[str, ...]:
    names: tuple[str, ...] = each(text)(content)
    if not names:
        refuse("at least one", None)
    return names


POLICY: Mapping[str, Reader] = {
    "max-peak": _size,
    "min-headroom": _headroom,
    "max-increase": _amount,
    "fail-on": choice(get_args(FailOn)),
    "informational": switch,
    "message": _words,
}
"""What a job may need."""
RUN: Mapping[str, Reader] = {"gpus": _some, "timeout": _seconds, "alloc-conf": _conf}
"""On what and how it is traced."""
SHARED = {**RUN, **POLICY}
"""Keys that stand in a job, or at the top for all of them."""
ONCE: Mapping[str, Reader] = {"baseline": text, "profile-dirs": each(text)}
"""Keys that stand at the top alone."""
TOP = {**ONCE, **SHARED}
"""Keys at the top, beside the jobs; each has its variable of the environment."""


def job_keys(folder: Path = Path()) -> Mapping[str, Reader]:
    """Every key of a job.

    Args:
        folder: The project file's, as it is found from here: relative paths begin there.
    """
    return {
        "name": _line,
        "target": _parsed(lambda typed: parse_target(typed, folder), "target"),
        "config": lambda content: _paths(content, folder),
        **SHARED,
        **{option.called: _reader(option, folder) for option in OPTIONS.values()},
        "checkpoint": lambda content: _checkpoint(text(content), folder),
    }


def _reader(option: OptionField, folder: Path) -> Reader:
    """As setups hold it, but text where the command takes text of a form of its own."""
    parse = parser_of(option.item, folder)
    if parse is None:
        return FIELDS[option.name]
    read = _parsed(parse, option.called)
    return read if option.item is option.kind else each(read)


def _paths(content: object, folder: Path) -> tuple[Path, ...]:
    names = (content,) if isinstance(content, str) else content
    if not isinstance(names, list | tuple):
        refuse("a file or a list of files", content)
    return tuple(folder / text(name) for name in names)


def _checkpoint(content: str, folder: Path) -> str:
    return content if content in ("none", "full") else str(folder / content)
