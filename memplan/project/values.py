"""What reads the values of a project file, beside options of a job; each says what it takes, for editors."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memplan.errors import MemplanError
from memplan.findings.utilization import THRESHOLDS, UTILIZATIONS
from memplan.job.strict import Reader, each, reads, refuse, text
from memplan.project.records import Amount
from memplan.replay.conf import parse_conf
from memplan.units import Bytes, parse_seconds, parse_size

_NUMBER = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)"
_SIZE = rf"\s*{_NUMBER}\s*([KkMmGgTt]?[Bb]|[KkMmGgTt]([Ii][Bb])?)?\s*"
_SHARE = rf"\s*{_NUMBER}\s*%\s*"
_TIME = rf"\s*{_NUMBER}\s*([Mm][Ss]|[Ss]|[Mm]([Ii][Nn])?|[Hh])?\s*"


def parsed(parse: Callable[[str], Any], key: str) -> Reader:
    """Reads text with what parses an option; what that says of the option is said of the key."""

    @reads(text.schema)
    def read(content: object) -> Any:
        try:
            return parse(text(content))
        except MemplanError as error:
            raise ValueError(in_one_line(error).removeprefix(f"--{key} ")) from error

    return read


def paths(folder: Path) -> Reader:
    """Reads a file or a list of files, relative to a folder."""

    @reads({"anyOf": [text.schema, each(text).schema]})
    def read(content: object) -> tuple[Path, ...]:
        names = (content,) if isinstance(content, str) else content
        if not isinstance(names, list | tuple):
            refuse("a file or a list of files", content)
        return tuple(folder / text(name) for name in names)

    return read


def in_one_line(error: MemplanError) -> str:
    """What happened, where and what to do."""
    where = f" ({error.where.removeprefix('--')})" if error.where else ""
    return f"{error.what}{where}" + (f"; {error.hint}" if error.hint else "")


@reads(text.schema)
def one_line(content: object) -> str:
    """Text of one line."""
    if not isinstance(content, str) or not content.strip() or not content.isprintable():
        refuse("text of one line", content)
    return content


@reads({"type": "string"})
def words(content: object) -> str:
    """Any text, the empty one too."""
    if not isinstance(content, str):
        refuse("text", content)
    return content


@reads({"type": "string", "pattern": f"^(?=.*[1-9]){_SIZE}$"})
def size(content: object) -> Bytes:
    """A size such as ``72GiB``."""
    # A bare number would be bytes, and is never meant so.
    if not isinstance(content, str):
        refuse("a size such as '72GiB'", content)
    found = parse_size(content)
    if not found:
        refuse("a size above 0", content)
    return found


@reads({"type": "string", "pattern": f"^({_SIZE}|{_SHARE})$"})
def amount(content: object) -> Amount:
    """A size, or a share such as ``5%``."""
    if not isinstance(content, str):
        refuse("a size such as '2GiB' or a share such as '5%'", content)
    if re.fullmatch(_SHARE, content) is not None:
        return Amount(share=float(content.replace("%", "")) / 100)
    return Amount(bytes=parse_size(content))


@reads({"type": "string", "pattern": f"^{_SHARE}$"})
def share(content: object) -> float:
    """A share below 100 %, such as ``10%``."""
    if not isinstance(content, str) or re.fullmatch(_SHARE, content) is None:
        refuse("a share such as '10%'", content)
    found: Amount = headroom(content)
    return found.share or 0.0


@reads({"type": "string", "pattern": f"^({_SIZE}|{_SHARE}|{'|'.join(UTILIZATIONS)})$"})
def headroom(content: object) -> Amount:
    """The same, or what a preset leaves above its target; a share is below 100 %."""
    if preset := next((THRESHOLDS[name] for name in UTILIZATIONS if name == content), None):
        return Amount(share=1 - preset.target)
    found: Amount = amount(content)
    if found.share is not None and found.share >= 1:
        refuse("a share below 100%", content)
    return found


@reads(
    {
        "anyOf": [{"type": "string", "pattern": f"^(?=.*[1-9]){_TIME}$"}, {"type": "number", "exclusiveMinimum": 0}],
    }
)
def seconds(content: object) -> float:
    """A time such as ``10m``, or a number of seconds."""
    if isinstance(content, bool) or not isinstance(content, str | int | float):
        refuse("a time such as '10m', or seconds", content)
    found = parse_seconds(content) if isinstance(content, str) else float(content)
    if not 0 < found < math.inf:
        refuse("a time above 0", content)
    return found


@reads(words.schema)
def allocator(content: object) -> str:
    """Options of the allocator, kept as they are written."""
    conf: str = words(content)
    try:
        parse_conf(conf)
    except MemplanError as error:
        raise ValueError(in_one_line(error)) from error
    return conf


@reads({**each(text).schema, "minItems": 1})
def some(content: object) -> tuple[str, ...]:
    """A list of at least one text."""
    names: tuple[str, ...] = each(text)(content)
    if not names:
        refuse("at least one", None)
    return names
