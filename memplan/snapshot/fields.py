"""Fields of a snapshot's dicts, each checked for its type; call stacks, each kept once."""

from functools import cache
from typing import Any

from memplan.replay.blocks import ADDRESS_BITS
from memplan.snapshot.records import Frame

_MAX_TIME = 1 << 63
_MAX_POOLS = 1 << 32
_SHOWN = 40
"""Characters of a wrong value that an error quotes."""


class MalformedSnapshotError(Exception):
    """The pickle is sound, but no snapshot."""


def described(value: object) -> str:
    """A wrong value for an error; containers by type alone, for writing one out may take for ever."""
    return f"{value!r:.{_SHOWN}}" if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"


def typed(value: object, kind: type[Any], owner: str) -> Any:
    """The value, if it is of the type.

    Raises:
        MalformedError: It is not.
    """
    if not isinstance(value, kind):
        raise MalformedSnapshotError(f"{owner} is a {type(value).__name__}, not a {kind.__name__}")
    return value


def items(fields: dict[str, Any], name: str, owner: str, *, optional: bool = False) -> list[Any]:
    """A field that is a list; empty where it is missing and may be.

    Raises:
        MalformedError: It is missing and may not be, or it is something else.
    """
    if name not in fields:
        if optional:
            return []
        raise MalformedSnapshotError(f"{owner} has no '{name}'")
    found: list[Any] = typed(fields[name], list, f"'{name}' of {owner}")
    return found


def integer(fields: dict[str, Any], name: str, owner: str) -> int:
    """A field that is an address, a size or another count.

    Raises:
        MalformedError: It is something else, or beyond all addresses.
    """
    value = fields.get(name)
    if type(value) is not int or not 0 <= value < 1 << ADDRESS_BITS:
        raise MalformedSnapshotError(f"'{name}' of {owner} is {described(value)}, not an address or size")
    return value


def time_of(fields: dict[str, Any]) -> int:
    """An event's time in microseconds; 0 where none was written, as before torch 2.2."""
    value = fields.get("time_us", 0)
    return value if type(value) is int and 0 <= value < _MAX_TIME else 0


def pool_of(fields: dict[str, Any], name: str) -> int:
    """A private pool as one number; 0 for the default one, and where none is written.

    PyTorch counts captured graphs' pools in the first half of the pair and the user's own in the second.
    """
    pair = fields.get(name, (0, 0))
    if isinstance(pair, tuple | list) and len(pair) == 2 and all(type(n) is int and 0 <= n < _MAX_POOLS for n in pair):
        return int(pair[0] * _MAX_POOLS + pair[1])
    raise MalformedSnapshotError(f"'{name}' is {described(pair)}, not a pair of numbers")


@cache
def pool_pair(pool: int) -> tuple[int, int]:
    """The pair that PyTorch writes for a pool; the inverse of ``pool_of``. Equal pairs are one object."""
    return divmod(pool, _MAX_POOLS)


def legacy_block(fields: dict[str, Any]) -> dict[str, Any]:
    """A block with its frames and size where today's versions write them; torch 2.0 put both into a history."""
    history = fields.get("history")
    if "frames" in fields or not isinstance(history, list) or not history or not isinstance(history[0], dict):
        return fields
    first = history[0]
    moved = {"frames": first.get("frames", [])} | (
        {"requested_size": first["real_size"]} if "real_size" in first else {}
    )
    return {**moved, **fields}


class Stacks:
    """Call stacks as tuples of frames, equal ones as one object: there are far fewer of them than of events.

    ``limit`` is how many frames the file can hold: lists that share their frames' entries cost no more than their own
    length, which is bounded by it.
    """

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._frames: dict[int, Frame] = {}
        self._equal_frames: dict[Frame, Frame] = {}
        self._by_list: dict[int, tuple[Frame, ...]] = {}
        self._equal_stacks: dict[tuple[int, ...], tuple[Frame, ...]] = {}

    def of(self, fields: dict[str, Any], owner: str) -> tuple[Frame, ...]:
        """The stack in ``frames``; empty where none was recorded.

        Raises:
            MalformedError: It is no list of frames.
        """
        entries = fields.get("frames")
        if not entries:
            return ()
        # All objects of the file are alive while it is read, so an identity stands for one of them.
        known = self._by_list.get(id(entries))
        return known if known is not None else self._read(typed(entries, list, f"'frames' of {owner}"))

    def _read(self, entries: list[Any]) -> tuple[Frame, ...]:
        self._left -= len(entries)
        if self._left < 0:
            raise MalformedSnapshotError("it has more frames than bytes")
        frames = tuple([self._frames.get(id(entry)) or self._frame(entry) for entry in entries])
        stack = self._equal_stacks.setdefault(tuple(map(id, frames)), frames)
        self._by_list[id(entries)] = stack
        return stack

    def _frame(self, entry: object) -> Frame:
        fields = typed(entry, dict, "a frame")
        line = fields.get("line", 0)
        frame = Frame(
            file=typed(fields.get("filename", "??"), str, "'filename' of a frame"),
            line=line if type(line) is int and 0 <= line < 1 << ADDRESS_BITS else 0,
            function=typed(fields.get("name", ""), str, "'name' of a frame"),
        )
        self._frames[id(entry)] = same = self._equal_frames.setdefault(frame, frame)
        return same
