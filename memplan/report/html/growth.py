"""What grew between two estimates, in the words and shapes that the templates put in place."""

from collections.abc import Iterator
from dataclasses import dataclass

from memplan.gate.records import Comparison
from memplan.report.draw.layout import source_line
from memplan.report.estimate.owners import TOP_LEVEL
from memplan.report.gate.growth import category_changes, change, grouped_growth, share
from memplan.units import format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthView:
    """A comparison in words; all empty where there is none."""

    grown: str = ""
    """Of the peak, since before; empty where nothing changed."""
    categories: tuple[tuple[str, str, str, str], ...] = ()
    """Category, before, after, change."""
    growth: tuple[tuple[str, str, str, str, str, str], ...] = ()
    """Change, category, module, source, before, after; repeated blocks together."""


def growth_view(comparison: Comparison | None) -> GrowthView:
    """Put a comparison into words."""
    if comparison is None:
        return GrowthView()
    return GrowthView(
        grown=f"{change(comparison.grown)} ({share(comparison)})" if comparison.growth else "",
        categories=tuple(_categories(comparison)),
        growth=tuple(_growth(comparison)),
    )


def _categories(comparison: Comparison) -> Iterator[tuple[str, str, str, str]]:
    for words, (before, after) in category_changes(comparison).items():
        yield words, format_bytes(before), format_bytes(after), change(after - before)


def _growth(comparison: Comparison) -> Iterator[tuple[str, str, str, str, str, str]]:
    for each in grouped_growth(comparison.growth):
        figures = (format_bytes(each.before), format_bytes(each.after))
        yield change(each.grown), each.category, each.module or TOP_LEVEL, source_line(each.source), *figures
