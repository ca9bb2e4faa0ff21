"""Fitting text from outside, and bars, into a fixed number of terminal cells. Nothing here wraps a name or a path."""

import re
from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.text import Text

from memplan.job.usercode import installed_part
from memplan.text import shorten

SEPARATOR = " · "
MIN_WIDTH, MAX_WIDTH = 60, 100
"""Cells of a report's lines: tables need the one, and beyond the other eyes lose the line."""
LABEL_CELLS = 8
"""Width of the label column of the report's first lines (``job``, ``read``)."""
EIGHTHS = " ▏▎▍▌▋▊▉"
FULL = "█"


def bounded(width: int) -> int:
    """Return the cells that a report takes of a terminal's."""
    return min(max(width, MIN_WIDTH), MAX_WIDTH)


def source_line(source: str) -> str:
    """A source line as people say it: a library's file starts at the library, not at the root of the disk."""
    return installed_part(source)


def file_name(source: str) -> str:
    """A source line without its folders."""
    return re.split(r"[\\/]", source)[-1]


def pad(text: str, width: int) -> str:
    """The text shortened or filled with spaces to exactly ``width`` cells."""
    short = shorten(text, width)
    return short + " " * (width - cell_len(short))


def columns(cells: Iterable[str], width: int) -> str:
    """Return figures side by side, each at the right of a column of so many cells."""
    return "".join(cell.rjust(width) for cell in cells)


def spread(left: Text, right: Text, width: int) -> Text:
    """One line with a part at each margin; the left part gives way where both do not fit."""
    room = max(0, width - right.cell_len - 2)
    left = left.copy()
    left.truncate(room, overflow="ellipsis")
    return Text.assemble(left, " " * max(0, width - left.cell_len - right.cell_len), right)


def head_line(made: str, target: str, width: int) -> Text:
    """Return the first line of a report: what made it, and at the other margin what it is of."""
    return spread(Text(made, style="dim"), Text(shorten(target, max(16, width - len(made) - 2)), style="bold"), width)


def flow(label: str, items: Iterable[str], width: int) -> list[Text]:
    """A label and its items, separated by dots; a line breaks only between items."""
    lines = packed(items, max(1, width - LABEL_CELLS))
    labels = [label, *[""] * (len(lines) - 1)]
    return [
        Text.assemble((name.ljust(LABEL_CELLS), "dim"), line) for name, line in zip(labels, lines, strict=True) if line
    ]


def packed(items: Iterable[str], room: int, separator: str = SEPARATOR) -> list[str]:
    """Items separated by dots or otherwise, as many in each line as there is room for; at least one line."""
    lines = [""]
    for item in (shorten(item, room) for item in items):
        joined = f"{lines[-1]}{separator}{item}" if lines[-1] else item
        if cell_len(joined) <= room:
            lines[-1] = joined
        else:
            lines.append(item)
    return lines


def signed_percent(share: float) -> str:
    """Return a share more or less: ``+12.1 %``."""
    return f"{100 * share:+.1f} %"


def percent(share: float) -> str:
    """Return a share: ``12.1 %``."""
    return f"{100 * share:.1f} %"


def stacked(blocks: Iterable[Sequence[Text]], width: int) -> list[Text]:
    """Blocks of lines below one another, an empty line between two that have any, each line cut to the width."""
    lines: list[Text] = []
    for block in blocks:
        lines += [*([Text("")] if lines and block else []), *block]
    for line in lines:
        line.rstrip()
        line.truncate(width, overflow="ellipsis")
    return lines


def paragraphs(title: str, sentences: Iterable[str], width: int) -> list[Text]:
    """A title over sentences that wrap with a hanging indent; nothing at all without sentences."""
    lines = [Text(line) for sentence in sentences for line in hanging("  - ", sentence, width) if sentence.strip()]
    return [Text(title, style="bold"), *lines] if lines else []


def explained(assumptions: Iterable[str], not_modelled: Iterable[str], width: int) -> list[list[Text]]:
    """Return what ``--explain`` adds to a report."""
    return [paragraphs("assumptions", assumptions, width), paragraphs("not modelled", not_modelled, width)]


def hanging(head: str, sentence: str, width: int) -> list[str]:
    """A head and a sentence, whose further lines start below its first word."""
    indent = cell_len(head)
    lines = packed(sentence.split(), max(1, width - indent), " ")
    return [(" " * indent if number else head) + line for number, line in enumerate(lines)]


def apportion(sizes: Sequence[int], cells: int) -> list[int]:
    """Share cells out in proportion to non-negative sizes, by largest remainder; none where every size is 0."""
    total = sum(sizes)
    if total <= 0:
        return [0] * len(sizes)
    shares = [size * cells // total for size in sizes]
    by_remainder = sorted(range(len(sizes)), key=lambda index: -(sizes[index] * cells % total))
    for index in by_remainder[: cells - sum(shares)]:
        shares[index] += 1
    return shares


def bar(eighths: int) -> str:
    """A bar of so many eighths of a cell."""
    return FULL * (eighths // 8) + (EIGHTHS[eighths % 8] if eighths % 8 else "")
