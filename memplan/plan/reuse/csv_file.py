"""Buffers as a table: the CSV that google/minimalloc reads and writes.

    id,lower,upper,size,alignment,gaps,offset      begin and start say the same as lower; buffer and buffer_id as id
    b1,0,9,4096,512,3-5 6-8,                       gaps: half-open moments in which its bytes may be used by others

An ``upper`` is the first moment after the buffer; an ``end`` (in place of ``upper``) is its last one, and so are the
ends of its gaps (src/converter.cc). An ``offset`` is where a buffer must lie; without one it goes anywhere.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from memplan.errors import UsageError
from memplan.files.read import UnreadableError, read_text
from memplan.plan.reuse.records import ArenaBuffer, ArenaPlacement, Problem

SAME = {"begin": "lower", "start": "lower", "buffer": "id", "buffer_id": "id", "end": "upper"}
"""Other names of columns (minimalloc, src/converter.cc)."""
REQUIRED = ("id", "lower", "upper", "size")
OPTIONAL = ("alignment", "gaps", "offset", "hint")
"""``hint`` is where another solver would begin, and not read."""
LARGEST = 2**63 - 1
"""Moments, sizes and offsets are 64-bit whole numbers, as in minimalloc."""


def read_problem(path: Path, *, capacity: int | None = None) -> Problem:
    """Read the buffers of a file.

    It is UTF-8, with or without a byte order mark, with any line ends.

    Raises:
        UsageError: The file cannot be read, or a line of it says nothing that can be placed; with the line.
    """
    try:
        text = io.StringIO(read_text(path).removeprefix("\ufeff"), newline="")
        return Problem(buffers=tuple(_buffers(path, text)), capacity=capacity)
    except UnreadableError as error:
        raise UsageError(f"the file cannot be read: {error}", where=str(path)) from error
    except csv.Error as error:
        raise UsageError(f"the file is no CSV: {error}", where=str(path)) from error


def write_problem(problem: Problem, placement: ArenaPlacement | None = None) -> str:
    """Buffers as a file's text, and where they lie: as placed, else their fixed offsets, if any.

    Columns that say nothing are left out.
    """
    offsets = [buffer.offset for buffer in problem.buffers] if placement is None else placement.offsets
    columns = list(REQUIRED)
    columns += ["alignment"] if any(buffer.alignment != 1 for buffer in problem.buffers) else []
    columns += ["gaps"] if any(buffer.gaps for buffer in problem.buffers) else []
    columns += ["offset"] if any(offset is not None for offset in offsets) else []
    text = io.StringIO()
    lines = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    lines.writeheader()
    lines.writerows(_row(buffer, offset) for buffer, offset in zip(problem.buffers, offsets, strict=True))
    return text.getvalue()


def _row(buffer: ArenaBuffer, offset: int | None) -> dict[str, object]:
    gaps = " ".join(f"{start}-{end}" for start, end in buffer.gaps)
    row: dict[str, object] = {"id": buffer.name, "lower": buffer.start, "upper": buffer.end, "size": buffer.size}
    return row | {"alignment": buffer.alignment, "gaps": gaps, "offset": "" if offset is None else offset}


def _buffers(path: Path, file: Iterable[str]) -> Iterator[ArenaBuffer]:
    rows = csv.reader(file, strict=True)
    header = [name.strip() for name in next(rows, [])]
    columns = _columns(path, header)
    # The ends of an ``end`` column belong to the lifespan.
    inclusive = int("end" in header)
    lines: dict[str, int] = {}
    for fields in rows:
        if not any(field.strip() for field in fields):
            continue
        where = f"{path}:{rows.line_num}"
        if len(fields) != len(columns):
            raise UsageError(f"{len(fields)} fields under {len(columns)} columns", where=where)
        buffer = _buffer({name: fields[at].strip() for name, at in columns.items()}, inclusive, where)
        if buffer.name in lines:
            raise UsageError(f"buffer '{buffer.name}' is in line {lines[buffer.name]} already", where=where)
        lines[buffer.name] = rows.line_num
        yield buffer


def _columns(path: Path, header: Sequence[str]) -> dict[str, int]:
    where, names = f"{path}:1", [SAME.get(name, name) for name in header]
    if not any(names):
        raise UsageError("the file is empty", where=where, hint=f"its first line is {','.join(REQUIRED)}")
    for name in REQUIRED:
        if name not in names:
            raise UsageError(f"column '{name}' is missing", where=where, hint=f"the first line is {','.join(REQUIRED)}")
    for at, name in enumerate(names):
        if name not in REQUIRED + OPTIONAL:
            known = ", ".join(REQUIRED + OPTIONAL)
            raise UsageError(f"column '{name}' is not known", where=where, hint=f"known: {known}")
        if name in names[:at]:
            raise UsageError(f"column '{name}' is there twice", where=where)
    return {name: at for at, name in enumerate(names)}


def _buffer(fields: Mapping[str, str], inclusive: int, where: str) -> ArenaBuffer:
    def number(column: str, default: int) -> int:
        text = fields.get(column, "")
        return _whole(text, f"{column} '{text}'", where) if text or column in REQUIRED else default

    buffer = ArenaBuffer(
        name=fields["id"],
        start=number("lower", 0),
        end=number("upper", 0) + inclusive,
        size=number("size", 0),
        alignment=number("alignment", 1),
        offset=number("offset", 0) if fields.get("offset") else None,
        gaps=_gaps(fields.get("gaps", ""), inclusive, where),
    )
    if wrong := _wrong(buffer):
        raise UsageError(wrong, where=where)
    return buffer


def _wrong(buffer: ArenaBuffer) -> str | None:
    """The first thing that is wrong with a buffer."""
    who, found = f"buffer '{buffer.name}'", None
    if not buffer.name:
        found = "a buffer has no id"
    elif buffer.end <= buffer.start:
        found = f"{who} is never alive: from {buffer.start} to before {buffer.end}"
    elif buffer.size < 0:
        found = f"{who} has {buffer.size} bytes"
    elif buffer.alignment < 1:
        found = f"{who} is aligned to {buffer.alignment}"
    elif buffer.offset is not None and (buffer.offset < 0 or buffer.offset % buffer.alignment):
        found = f"{who} cannot lie at {buffer.offset}: offsets are multiples of {buffer.alignment} from 0 on"
    elif buffer.gaps and (buffer.gaps[0][0] < buffer.start or buffer.gaps[-1][1] > buffer.end):
        found = f"a gap of {who} is outside its lifespan"
    return found


def _whole(text: str, what: str, where: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise UsageError(f"{what} is not a whole number", where=where)
    # Python refuses to read numbers of thousands of digits; so many are too large before that.
    if len(digits.lstrip("0")) > len(str(LARGEST)) or int(digits) > LARGEST:
        raise UsageError(f"{what} is beyond 64 bits", where=where)
    return int(text)


def _gaps(text: str, inclusive: int, where: str) -> tuple[tuple[int, int], ...]:
    """``3-5 6-8``; gaps that touch or overlap become one."""
    found: list[tuple[int, int]] = []
    for gap in text.split():
        start_text, dash, end_text = gap.partition("-")
        if "@" in gap:
            raise UsageError(f"gap '{gap}' frees only some of the bytes, which is not supported", where=where)
        if not dash:
            raise UsageError(f"gap '{gap}' is not written start-end", where=where)
        start, end = _whole(start_text, f"gap '{gap}'", where), _whole(end_text, f"gap '{gap}'", where) + inclusive
        if end <= start:
            raise UsageError(f"gap '{gap}' is empty", where=where)
        found.append((start, end))
    return merged(found)


def merged(stretches: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Half-open stretches in order and apart: what touches or overlaps is one."""
    apart: list[tuple[int, int]] = []
    for start, end in sorted(stretches):
        if apart and start <= apart[-1][1]:
            apart[-1] = apart[-1][0], max(end, apart[-1][1])
        else:
            apart.append((start, end))
    return tuple(apart)
