"""Looks through a pickle's opcodes before anything is built from it.

Python's unpickler does what a file says: calls functions, makes room for memo entries or byte strings of whatever
number the file claims, computes hashes of nested tuples in exponential time. A snapshot needs none of that, so what it
does not need is refused here, in one pass that takes a fraction of the time of the loading itself.
"""

import pickletools
import re
from typing import Final

_INTEGER: Final = (
    rb"(?:K.|M.{2}|J.{4}|\x8a(?:\x00|\x01.|\x02.{2}|\x03.{3}|\x04.{4}|\x05.{5}|\x06.{6}|\x07.{7}|\x08.{8})"
    rb"|[IL]-?[0-9]{1,20}L?\n)"
)
"""At most eight bytes, as PyTorch writes them."""
_SMALL: Final = rb"(?:K.|M.{2}|J.{4}|\x8a(?:\x00|\x01.|\x02.{2}|\x03.{3}|\x04.{4})|[IL]-?[0-9]{1,10}L?\n)"
"""At most four bytes: a counter."""
_ITEM: Final = rb"(?:(?:\x95.{3}\x00{5})?" + _SMALL + rb")"
"""A number in a tuple, where Python's pickler may begin a frame (of 64 KiB, so far below the 16 MiB allowed here)."""
_TUPLE: Final = rb"\)|" + rb"|".join([_ITEM + rb"\x85", _ITEM + rb"{2}\x86", rb"\(" + _ITEM + rb"{0,2}+t"])
"""Pairs of counters (``segment_pool_id``), and shorter. Tuples may be keys, too, and their hashes (64 bits) are not
salted: more or longer numbers make any number of tuples with one hash, whose dict takes the square of its size in time;
tuples inside tuples take for ever to be hashed at all.
"""
_ATOM: Final = rb"N|\x88|\x89|G.{8}|F[^\n]{1,40}\n|V[^\n]*\n"
_CONTAINER: Final = rb"[\](}aelsud]"
"""Lists and dicts, and what fills them."""
_MEMO: Final = rb"h.|j.{4}|q.|\x94|g[0-9]{1,10}\n"
_PROTOCOL: Final = rb"\x80."
_PLAIN: Final = re.compile(
    rb"(?:" + rb"|".join([_MEMO, _TUPLE, _INTEGER, _CONTAINER, _ATOM, _PROTOCOL]) + rb")++", re.DOTALL
)
"""The longest stretch of opcodes that can do no harm, whatever their arguments."""
_TEXT_LENGTHS: Final = {0x8C: 1, ord("X"): 4, 0x8D: 8}
"""Opcode of a text → bytes that its length takes."""
_NUMBERED: Final = re.compile(rb"r(?P<put>.{4})|p(?P<text>[0-9]{1,10})\n|\x95(?P<frame>.{8})", re.DOTALL)
"""Opcodes that make the unpickler take memory by a number in the file."""
_LEAST_PUT: Final = 3
"""Bytes of the shortest object with its numbered memo entry; so entry ``n`` stands at byte ``3 * n`` or later."""
_LEAST_CONTAINER: Final = 4
"""Bytes that a list or dict of a snapshot takes at least, with the key that it stands under; real ones take 90."""
_FEW_CONTAINERS: Final = 1000
"""As many lists and dicts are no burden, however short the file."""
_STOP: Final = ord(".")
_OPCODES: Final = {opcode.code: opcode for opcode in pickletools.opcodes}


def objection(data: bytes) -> str:
    """What speaks against loading a pickle; empty if nothing does.

    A pickle without objection, loaded, is made of dicts, lists, tuples of numbers, text, numbers, True, False and None,
    and takes memory in proportion to its length.
    """
    # An empty list takes one byte here and seventy in memory. Bytes inside texts count too, which does not matter.
    if data.count(b"]") + data.count(b"}") > max(_FEW_CONTAINERS, len(data) // _LEAST_CONTAINER):
        return "it has more lists and dicts than a snapshot of its size"
    position = 0
    while position < len(data):
        plain = _PLAIN.match(data, position)
        position = plain.end() if plain else position
        code = data[position] if position < len(data) else None
        if code == _STOP:
            return ""
        end = _text_end(data, position) if code in _TEXT_LENGTHS else _numbered_end(data, position)
        if end is None:
            return _complaint(data, position)
        position = end
    return "it ends in the middle"


def _text_end(data: bytes, position: int) -> int | None:
    """Where a text ends; None if that is beyond the file."""
    start = position + 1 + _TEXT_LENGTHS[data[position]]
    end = start + int.from_bytes(data[position + 1 : start], "little")
    return end if end <= len(data) else None


def _numbered_end(data: bytes, position: int) -> int | None:
    """Where a memo entry or a frame's head ends; None if it is neither, or claims more than the file can hold."""
    found = _NUMBERED.match(data, position)
    if found is None:
        return None
    if found["frame"] is not None:
        return found.end() if found.end() + int.from_bytes(found["frame"], "little") <= len(data) else None
    index = int(found["text"]) if found["put"] is None else int.from_bytes(found["put"], "little")
    return found.end() if index * _LEAST_PUT <= position else None


def _complaint(data: bytes, position: int) -> str:
    if position >= len(data):
        return "it ends in the middle"
    opcode = _OPCODES.get(chr(data[position]))
    if opcode is None:
        return f"byte {position} is no instruction of a pickle"
    return f"byte {position} says {opcode.name}{_SUSPICIONS.get(opcode.name, ', which no snapshot does')}"


_SUSPICIONS: Final = {
    **dict.fromkeys(("GLOBAL", "STACK_GLOBAL", "INST"), ", which names code to run"),
    **dict.fromkeys(("REDUCE", "BUILD", "OBJ", "NEWOBJ", "NEWOBJ_EX"), ", which runs code"),
    **dict.fromkeys(
        ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
        " with more text than the file has: it is cut short or damaged",
    ),
    **dict.fromkeys(("PUT", "LONG_BINPUT"), " with a number beyond all that the file can hold"),
    "FRAME": " with more bytes than the file has: it is cut short or damaged",
}
"""Opcode → what is wrong where it is refused."""
