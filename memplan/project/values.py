"""What the keys of a project file hold: the type of each, which reads it and is the schema for editors."""

import math
import re
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Required

from annotated_types import Gt, MinLen
from pydantic import AfterValidator, ConfigDict, Field, Strict, TypeAdapter, ValidationError, ValidationInfo
from typing_extensions import TypedDict

from memplan.contract.document import Document
from memplan.contract.fields import types_of
from memplan.contract.models import TEXT, Models, Untitled, parsed
from memplan.contract.problems import problems
from memplan.findings.utilization import THRESHOLDS, UTILIZATIONS
from memplan.job.options import OPTIONS, OptionField
from memplan.job.setup_file import TABLES
from memplan.job.spec import JobSpec
from memplan.job.target import parse_target
from memplan.project.keys import JOB, TOP
from memplan.project.records import Amount, FailOn
from memplan.replay.conf import parse_conf
from memplan.units import Bytes, parse_seconds, parse_size

_NUMBER = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)"
_SIZE = rf"\s*{_NUMBER}\s*([KkMmGgTt]?[Bb]|[KkMmGgTt]([Ii][Bb])?)?\s*"
_SHARE = rf"\s*{_NUMBER}\s*%\s*"
_TIME = rf"\s*{_NUMBER}\s*([Mm][Ss]|[Ss]|[Mm]([Ii][Nn])?|[Hh])?\s*"


def values_of(
    content: Mapping[str, object], keys: Collection[str], required: Collection[str] = (), *, folder: Path = Path()
) -> tuple[dict[str, Any], list[str]]:
    """Read what can be read of a table: key → value; and what is wrong, each with its key."""
    reader, schema = _reader(frozenset(keys))
    missing = [f"{key}: missing" for key in sorted(set(required) - content.keys())]
    try:
        return reader.validate_python(content, context=folder), missing
    except ValidationError as error:
        wrong = {problem["loc"][0] for problem in error.errors(include_url=False)}
        right = {key: value for key, value in content.items() if key not in wrong}
        return reader.validate_python(right, context=folder), [*problems(error, schema), *missing]


def _size(text: str) -> Bytes:
    found = parse_size(text)
    if not found:
        raise ValueError(f"expected a size above 0, found {text!r}")
    return found


def _amount(text: str) -> Amount:
    if re.fullmatch(_SHARE, text) is not None:
        return Amount(share=float(text.replace("%", "")) / 100)
    return Amount(bytes=parse_size(text))


def headroom(text: str) -> Amount:
    """Read a size, a share below 100 %, or what a preset leaves above its target."""
    if preset := next((THRESHOLDS[name] for name in UTILIZATIONS if name == text), None):
        return Amount(share=1 - preset.target)
    found = _amount(text)
    if found.share is not None and found.share >= 1:
        raise ValueError(f"expected a share below 100%, found {text!r}")
    return found


def _share(text: str) -> float:
    if re.fullmatch(_SHARE, text) is None:
        raise ValueError(f"expected a share such as '10%', found {text!r}")
    return headroom(text).share or 0.0


def _seconds(written: str | float) -> float:
    found = parse_seconds(written) if isinstance(written, str) else written
    if not 0 < found < math.inf:
        raise ValueError(f"expected a time above 0, found {written!r}")
    return found


def _one_line(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise ValueError(f"expected text of one line, found {text!r}")
    return text


def _allocator(text: str) -> str:
    parse_conf(text)
    return text


def _plan(text: str, info: ValidationInfo[Path]) -> str:
    return text if text in ("none", "full") else str(info.context / text)


def _text(read: Any, pattern: str, *examples: str) -> Any:
    """Return the type of text of a form of its own, which only editors know as a pattern."""
    schema: dict[str, Any] = {"pattern": f"^{pattern}$", "examples": list(examples)}
    return Annotated[str, Field(json_schema_extra=schema), AfterValidator(read)]


def _of_option(option: OptionField) -> Any:
    """Return the type of an option: as in setups, but text where the command takes text of a form of its own."""
    if option.parser() is None:
        return _FIELDS.of(types_of(JobSpec)[option.name])

    def read(text: str, info: ValidationInfo[Path]) -> Any:
        parse = option.parser(info.context)
        assert parse is not None  # noqa: S101 - it had one above.
        return parse(text)

    item = Annotated[TEXT, AfterValidator(parsed(read))]
    return item if option.item is option.kind else tuple[item, ...]


_FIELDS = Models(TABLES, reading=True, strict=True, closed=True)
_SWITCH = Annotated[bool, Strict()]
_FILE = Annotated[TEXT, AfterValidator(lambda text, info: info.context / text)]
_TARGET = Annotated[TEXT, AfterValidator(parsed(lambda text, info: parse_target(text, info.context)))]
_FILES = Annotated[
    _FILE | tuple[_FILE, ...], AfterValidator(lambda found: (found,) if isinstance(found, Path) else found)
]
_TIMES = _text(_seconds, f"(?=.*[1-9]){_TIME}", "10m") | Annotated[float, Gt(0), Strict(), AfterValidator(_seconds)]
TYPES: Mapping[str, tuple[Any, str]] = {
    "max-peak": (_text(_size, f"(?=.*[1-9]){_SIZE}", "72GiB"), "Device peak at most, as 72GiB"),
    "min-headroom": (
        _text(headroom, f"({_SIZE}|{_SHARE}|{'|'.join(UTILIZATIONS)})", "2GiB", "5%"),
        "Usable memory left at least, as 5% of it, 2GiB, or balanced",
    ),
    "max-increase": (
        _text(_amount, f"({_SIZE}|{_SHARE})", "2GiB", "5%"), "Growth over the baseline at most, as 2% or 1GiB"
    ),
    "max-fragmentation": (
        _text(_share, _SHARE, "10%"), "Share of reserved bytes that nobody asked for, at most, as 10%"
    ),
    "fail-on": (FailOn, "The verdict at which a job fails, or a worse one"),
    "informational": (_SWITCH, "Findings are told and never fail the gate"),
    "message": (str, "Told with every failure"),
    "gpus": (Annotated[tuple[TEXT, ...], MinLen(1)], "GPU profiles, as 'memplan gpus' lists them"),
    "timeout": (_TIMES, "Time that the target's code may take, as 10m; a number is seconds"),
    "alloc-conf": (Annotated[str, AfterValidator(parsed(_allocator))], "PYTORCH_CUDA_ALLOC_CONF of the run"),
    "baseline": (TEXT, "Where the accepted figures lie, relative to this file"),
    "profile-dirs": (tuple[TEXT, ...], "Folders of further GPU profiles"),
    "name": (Annotated[TEXT, AfterValidator(_one_line)], "What reports and baselines call the job"),
    "target": (_TARGET, "model.py:factory, package.module:factory, hf:DIR or preset:NAME"),
    "script": (TEXT, "Instead of a target, a program that trains: train.py, or torchrun … train.py"),
    "args": (tuple[TEXT, ...], "Its arguments"),
    "config": (_FILES, "Configuration files of DeepSpeed, accelerate, axolotl or transformers, or setups"),
    **{option.called: (_of_option(option), option.summary) for option in OPTIONS.values()},
    "checkpoint": (Annotated[TEXT, AfterValidator(_plan)], OPTIONS["checkpoint"].summary),
}  # fmt: skip
"""Key → its type, and what editors tell of it."""


def _table(called: str, keys: Collection[str], *required: str, **further: Any) -> Any:
    types = {key: Annotated[kind, Field(description=about)] for key, (kind, about) in TYPES.items() if key in keys}
    types |= {key: Required[types[key]] for key in required}
    table = TypedDict(called, {**types, **further}, total=False)  # type: ignore[misc]
    table.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[attr-defined]
    return table


@cache
def _reader(keys: frozenset[str]) -> tuple[TypeAdapter[Any], Mapping[str, Any]]:
    reader: TypeAdapter[Any] = TypeAdapter(_table("table", keys))
    return reader, reader.json_schema(schema_generator=Untitled)


_ONE_JOB: Any = _table("job", JOB, "name")
_JOBS: Any = Annotated[tuple[_ONE_JOB, ...], MinLen(1)]
DOCUMENT = Document(name="project", root=_table("project", TOP, job=Required[_JOBS]), closed=True)
"""What editors are told of ``memplan.toml`` and ``[tool.memplan]`` as a whole; ``memplan.project.read`` reads it.
Keys of a job that stand at the top are defaults for all jobs."""
