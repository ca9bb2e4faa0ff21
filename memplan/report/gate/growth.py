"""What grew, in lines: repeated blocks together, as everywhere."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rich.text import Text

from memplan.gate.records import Comparison, Growth
from memplan.report.draw.layout import file_name, pad, spread
from memplan.report.estimate.owners import TOP_LEVEL, stars
from memplan.report.labels import LABEL_CELLS, LABELS
from memplan.text import shorten
from memplan.units import Bytes, format_bytes


def elsewhere(places: int) -> str:
    """Where the rest of a growth is."""
    return f"in {places} further place{'s' if places > 1 else ''}"


def change(size: int) -> str:
    """A size with its sign."""
    return f"{'+' if size >= 0 else ''}{format_bytes(size)}"


def share(comparison: Comparison) -> str:
    """Growth of the peak as a share, ``+12.1 %``; empty where there was none before."""
    before = comparison.before.peak.device_bytes
    return f"{100 * comparison.grown / before:+.1f} %" if before else ""


def grown(comparison: Comparison) -> str:
    """How much the peak has grown."""
    if not comparison.grown:
        return "same"
    return change(comparison.grown) + (f" ({share(comparison)})" if share(comparison) else "")


def grouped_growth(growth: Iterable[Growth]) -> list[Growth]:
    """Growth of modules that differ only in a block's number as one, ``layers.*.mlp x32``; the largest change first.

    Groups that come to nothing (bytes that moved from block to block) are left out.
    """
    groups: dict[tuple[str, str], list[Growth]] = {}
    for each in growth:
        groups.setdefault((stars(each.module), each.category), []).append(each)
    merged = [each for (name, _), members in groups.items() for each in _together(name, members)]
    return sorted((each for each in merged if each.grown), key=lambda each: (-abs(each.grown), each.module))


def _together(name: str, members: Sequence[Growth]) -> Sequence[Growth]:
    modules = {member.module for member in members}
    total = sum(member.grown for member in members)
    if len(modules) == 1 or (name == "*" and total):
        # The children of a plain nn.Sequential are called by number alone: a star for them says nothing.
        return members
    source = max(members, key=lambda member: member.after).source
    before, after = (Bytes(sum(getattr(member, side) for member in members)) for side in ("before", "after"))
    shared = f"{name} x{len(modules)}"
    return [replace(members[0], module=shared, source=source, before=before, after=after)]


def category_changes(comparison: Comparison) -> dict[str, tuple[Bytes, Bytes]]:
    """Words of each category that changed → before and after, the largest change first."""
    changed = {LABELS.get(name, name): pair for name, pair in comparison.categories.items() if pair[0] != pair[1]}
    return dict(sorted(changed.items(), key=lambda item: -abs(item[1][1] - item[1][0])))


def growth_lines(comparison: Comparison, width: int, *, shown: int, indent: str = "  ") -> list[Text]:
    """A line for each of the largest changes, and one for the rest."""
    groups = grouped_growth(comparison.growth)
    sizes = [change(each.grown) for each in groups[:shown]]
    cells = max(map(len, sizes), default=0)
    lines = []
    for each, size in zip(groups, sizes, strict=False):
        source = shorten(file_name(each.source), 3 * width // 10)
        head = f"{indent}{size:>{cells}}  {pad(LABELS.get(each.category, each.category), LABEL_CELLS)}  "
        module = shorten(each.module or TOP_LEVEL, max(1, width - len(head) - len(source) - 2))
        lines.append(spread(Text(head + module), Text(source, style="dim"), width))
    rest = groups[shown:]
    if rest:
        total = change(sum(each.grown for each in rest))
        lines.append(Text(f"{indent}{total:>{cells}}  {elsewhere(len(rest))}", style="dim"))
    return lines
