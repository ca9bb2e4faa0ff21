"""Files as text: plain Python in its declared encoding, and the code cells of notebooks as one text."""

import ast
import io
import json
import re
import tokenize
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from memplan.audit.records import Unread
from memplan.files.read import UnreadableError, read_bytes

NOTEBOOK = ".ipynb"
_LARGEST = 8 << 20
"""Bytes of a file that is still read: what is larger was generated."""
_MAGIC = re.compile(r"^(\s*)(?:[%!?]|.*\?\s*$)")
_CELL_MAGIC = re.compile(r"^\s*%%(?!time\b|timeit\b|capture\b|prun\b|memit\b)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One file's code."""

    file: str
    """As it was reached, with forward slashes."""
    lines: tuple[str, ...]
    """Of all cells, one behind the other."""
    tree: ast.Module | None
    """What they mean; None where they are no Python."""
    cells: tuple[tuple[int, int], ...]
    """Cell's number and its first line, from 1, in ``lines``; empty for a plain file."""
    unread: tuple[Unread, ...]
    """What is left out."""

    def place(self, line: int) -> tuple[int | None, int]:
        """Cell, or None, and line in it, of a line in ``lines``."""
        inside = [(cell, first) for cell, first in self.cells if first <= line]
        return (inside[-1][0], line - inside[-1][1] + 1) if inside else (None, line)


def read_source(path: Path, name: str) -> Source:
    """Read a file; what cannot be read is told, not raised."""
    try:
        content = read_bytes(path, _LARGEST)
    except UnreadableError as error:
        return _nothing(name, str(error))
    return parse_notebook(content, name) if path.suffix == NOTEBOOK else parse_python(content, name)


def parse_python(content: bytes, name: str) -> Source:
    """The same of what a Python file holds."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        text = io.TextIOWrapper(io.BytesIO(content), encoding).read()
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        return _nothing(name, f"not text: {error}")
    lines = _split(text)
    tree, problem = _parsed(text)
    unread = (Unread(file=name, cell=None, line=problem[0], problem=problem[1]),) if problem else ()
    return Source(file=name, lines=lines, tree=tree, cells=(), unread=unread)


def parse_notebook(content: bytes, name: str) -> Source:
    """The code cells of a notebook; a cell that is no Python is left out, and told."""
    try:
        document = json.loads(content)
        cells = [each for each in document["cells"] if each.get("cell_type") == "code"]
        texts = ["".join(each.get("source", "")) for each in cells]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return _nothing(name, f"no notebook: {type(error).__name__}")
    lines: list[str] = []
    starts, unread = [], []
    for number, text in enumerate(texts, 1):
        starts.append((number, len(lines) + 1))
        code = _without_magics(text)
        _, problem = _parsed(code)
        if problem:
            unread.append(Unread(file=name, cell=number, line=problem[0], problem=problem[1]))
            code = "".join("\n" for _ in _split(code))
        lines += _split(code)
    tree, problem = _parsed("\n".join(lines) + "\n")
    unread += [Unread(file=name, cell=None, line=1, problem=problem[1])] if problem else []
    return Source(file=name, lines=tuple(lines), tree=tree, cells=tuple(starts), unread=tuple(unread))


def _parsed(text: str) -> tuple[ast.Module | None, tuple[int, str] | None]:
    """The tree, or line and what is wrong with it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # What the compiler thinks of others' escapes is their affair.
            return ast.parse(text), None
    except SyntaxError as error:
        return None, (max(1, error.lineno or 1), f"syntax error: {error.msg}")
    except (ValueError, RecursionError, MemoryError) as error:
        return None, (1, f"cannot be parsed: {str(error) or type(error).__name__}")


def _without_magics(text: str) -> str:
    """IPython's own lines replaced by ``pass``; a cell in another language by nothing."""
    lines = _split(text)
    if lines and _CELL_MAGIC.match(lines[0]):
        return "\n" * len(lines)
    kept = [f"{found[1]}pass" if (found := _MAGIC.match(line)) else line for line in lines]
    # ``%%time`` and such stand above Python.
    return "".join(f"{line}\n" for line in kept)


def _split(text: str) -> tuple[str, ...]:
    """Lines as Python counts them: a form feed or U+2028 begins none."""
    return tuple(line.rstrip("\r\n") for line in io.StringIO(text, newline=None))


def _nothing(name: str, problem: str) -> Source:
    return Source(
        file=name, lines=(), tree=None, cells=(), unread=(Unread(file=name, cell=None, line=1, problem=problem),)
    )


def comments(lines: Sequence[str]) -> dict[int, str]:
    """Line → its comment, for a text that parses."""
    found: dict[int, str] = {}
    reader = io.StringIO("".join(f"{line}\n" for line in lines)).readline
    try:
        for token in tokenize.generate_tokens(reader):
            if token.type == tokenize.COMMENT:
                found[token.start[0]] = token.string
    except (
        tokenize.TokenError,
        SyntaxError,
    ):  # What ``ast`` reads and ``tokenize`` does not: rare, and no reason to end.
        return found
    return found
