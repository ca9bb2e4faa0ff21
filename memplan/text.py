"""Text from outside, made fit to be shown."""

import re
import textwrap

from rich.cells import cell_len

ELLIPSIS = "…"
_LABEL = re.compile(r"\A\s*(?:(?:error|note|hint|at|-):? +)?")
"""What a message's line begins with."""


def clean(text: str) -> str:
    """The text with control characters, line breaks and direction marks made visible as replacement characters."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def plain(text: str) -> str:
    """A sentence on one line, without control characters."""
    return clean(" ".join(text.split()))


def folded(line: str, width: int) -> str:
    """A line of a message broken between words, its further lines below its first word.

    A name, a path, and a command to be copied stay whole, however long: a terminal breaks them without harm.
    """
    words = _LABEL.sub("", line, count=1)
    label = line.removesuffix(words)
    if len(line) <= width or words.startswith("memplan "):
        return line
    lines = textwrap.wrap(words, max(1, width - len(label)), break_long_words=False, break_on_hyphens=False)
    return label + f"\n{' ' * len(label)}".join(lines)


def shorten(text: str, width: int) -> str:
    """Cut the middle out of a text so that it takes at most ``width`` cells: both ends of a path tell the most."""
    text = clean(text)
    if cell_len(text) <= width:
        return text
    for kept in range(min(len(text), width) - 1, -1, -1):
        head, tail = kept // 2, kept - kept // 2
        short = text[:head] + ELLIPSIS + text[len(text) - tail :]
        if cell_len(short) <= width:
            return short
    return ""
