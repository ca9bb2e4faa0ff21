"""Who owns the bytes alive at a moment: summed by category, by module and by source line."""

from collections import Counter
from collections.abc import Iterable

from memplan.lifetime.records import Category, Lifetimes
from memplan.units import StorageId


def by_category(lifetimes: Lifetimes, alive: Iterable[StorageId]) -> dict[Category, int]:
    """Bytes of each category among some storages; every category is present."""
    totals = dict.fromkeys(Category, 0)
    for storage in alive:
        buffer = lifetimes.buffers[storage]
        totals[buffer.category] += buffer.nbytes
    return totals


def by_owner(lifetimes: Lifetimes, alive: Iterable[StorageId]) -> list[tuple[tuple[str, str, Category], int]]:
    """Bytes by ``(module, source line, category)`` among some storages, largest first."""
    totals: Counter[tuple[str, str, Category]] = Counter()
    for storage in alive:
        buffer = lifetimes.buffers[storage]
        totals[buffer.module, buffer.source, buffer.category] += buffer.nbytes
    return totals.most_common()
