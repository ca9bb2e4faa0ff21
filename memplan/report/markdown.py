"""Text from outside in GitHub's Markdown: nothing in it is markup, ends a table's cell, or mentions anybody.

Mentions and references (``@team``, ``#12``) are looked for in the rendered page, where a backslash is gone. An empty
comment in their middle is what parts them.
"""

import html
import re
from collections.abc import Iterable, Sequence

from memplan.text import clean

_ODD = re.compile(
    r"(?P<markup>[\\`*_\[\]<>&|~])"
    # GitHub's mentions, issues, emoji and addresses: github.github.com/gfm, docs.github.com "Autolinked references".
    r"|(?P<reference>@(?=\w)|#(?=\d)|\bGH(?=-\d)|:(?=//|[\w+-]+:)|\bwww(?=\.))"
    r"|(?P<formula>\$)"
)
_ENDS_CODE = re.compile(r"[`|\\]|^\s|\s$")
_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")


def sentence(text: str) -> str:
    """A sentence as running text or in a cell; it must not begin the line, where ``1.`` or ``-`` would be markup."""
    return _ODD.sub(_inert, clean(" ".join(text.split())))


def _inert(match: re.Match[str]) -> str:
    if match["markup"]:
        return f"\\{match[0]}"
    return f"{match[0]}<!-- -->" if match["reference"] else "<span>$</span>"


def code(text: str) -> str:
    """A name as code, in running text or in a cell; nothing for an empty one."""
    text = clean(text)
    if not text:
        return ""
    if not _ENDS_CODE.search(text):
        return f"`{text}`"
    # Backslashes do not escape inside of code; what is spelt by number is no markup.
    return f"<code>{_PUNCTUATION.sub(lambda match: f'&#{ord(match[0])};', text)}</code>"


def html_code(text: str) -> str:
    """A name as code where Markdown is not read: on the line of a ``<summary>``."""
    return f"<code>{html.escape(clean(text))}</code>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table.

    A column whose name ends in a colon is aligned to the right. Cells are made by ``sentence`` and ``code``.
    """
    names = [name.rstrip(":") for name in head]
    rules = ["---:" if name.endswith(":") else "---" for name in head]
    return [table_row(names), table_row(rules), *map(table_row, rows)]


def table_row(cells: Iterable[str]) -> str:
    """One line of it."""
    return f"| {' | '.join(cells)} |"
