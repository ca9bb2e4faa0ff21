"""Who holds the memory at the peak: repeated blocks together, for no single one of 80 layers is ever the answer."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rich.text import Text

from memplan.measure.records import Owner
from memplan.report.draw.layout import file_name, pad, spread
from memplan.report.labels import LABEL_CELLS, LABELS
from memplan.text import shorten
from memplan.units import format_bytes

OWNERS_SHOWN = 5
TOP_LEVEL = "(top level)"
"""What belongs to no submodule: the model's own parameters, the loss, the optimizer's work."""


def grouped(owners: Iterable[Owner]) -> list[Owner]:
    """Owners that differ only in a block's number as one: ``layers.*.mlp x32``.

    Groups hold the same bytes in all, largest first. A group of one keeps its name.
    """
    groups: dict[tuple[str, str, str], list[Owner]] = {}
    for owner in owners:
        pattern = stars(owner.module)
        # The children of a plain nn.Sequential are called by number alone; one star for all of them says nothing.
        key = (owner.module if pattern == "*" else pattern, owner.category, owner.source)
        groups.setdefault(key, []).append(owner)
    merged = []
    for (pattern, _, _), members in groups.items():
        modules = {owner.module for owner in members}
        name = f"{pattern} x{len(modules)}" if len(modules) > 1 else members[0].module
        merged.append(replace(members[0], module=name, bytes=sum(owner.bytes for owner in members)))
    return sorted(merged, key=lambda owner: -owner.bytes)


def stars(module: str) -> str:
    """A module's path with stars for the numbers of blocks."""
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", module)


def owner_lines(owners: Sequence[Owner], width: int) -> list[Text]:
    """A line for each of the largest groups; nothing without owners."""
    shown = grouped(owners)[:OWNERS_SHOWN]
    if not shown:
        return []
    sizes = [format_bytes(owner.bytes) for owner in shown]
    lines = [Text("  held at the peak by", style="dim")]
    for owner, size in zip(shown, sizes, strict=True):
        kind = pad(LABELS.get(owner.category, owner.category), LABEL_CELLS)
        source = shorten(file_name(owner.source), 3 * width // 10)
        head = f"  {size:>{max(map(len, sizes))}}  {kind}  "
        module = shorten(owner.module or TOP_LEVEL, width - len(head) - len(source) - 4)
        lines.append(spread(Text(head + module), Text(source, style="dim"), width))
    return lines
