"""Text from outside, made fit to be shown."""

from rich.cells import cell_len

ELLIPSIS = "…"


def clean(text: str) -> str:
    """The text with control characters, line breaks and direction marks made visible as replacement characters."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def plain(text: str) -> str:
    """A sentence on one line, without control characters."""
    return clean(" ".join(text.split()))


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
