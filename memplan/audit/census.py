"""Pools of memory in all files together: what one file alone cannot tell."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from memplan.audit.pool_records import Definition, FilePools, ModuleClass, PoolCensus, PoolClass


def census(files: Sequence[FilePools]) -> PoolCensus:
    """Put the files' pools together; empty where no file defines, imports or uses a pool of memory."""
    modules = _modules([each for file in files for each in file.modules])
    layers = {each.name for each in modules}
    classes = tuple(each for file in files for each in file.classes if each.name not in layers)
    factories = [each for file in files for each in file.factories]
    imported = _files_with((file.imported for file in files), layers)
    known = {each.name for each in (*classes, *factories)} | imported.keys()
    used = _files_with((file.used & known for file in files), layers)
    found = PoolCensus(
        classes=classes,
        imported=imported,
        used=used,
        switches=tuple(each for file in files for each in file.switches),
        calls=tuple(each for file in files for each in file.calls),
        unused_factories=tuple(each for each in factories if each.name not in used),
        differing_names=_differing(classes),
    )
    if found.is_empty:
        return found
    without = tuple(Definition(name=each.name, file=each.file, line=each.line) for each in modules if not each.has_pool)
    return replace(found, modules=len(modules), modules_without_pool=without)


def _files_with(names: Iterable[frozenset[str]], layers: set[str]) -> dict[str, int]:
    """Name and files that have it, the most first; pooling layers are none."""
    counts = Counter(name for of_file in names for name in of_file - layers)
    return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0])))


def _modules(classes: Sequence[ModuleClass]) -> list[ModuleClass]:
    """Those that are modules, by their bases in other files, too; one has a pool where a base of it has."""
    modules = {each.name for each in classes if each.is_module}
    pooled = {each.name for each in classes if each.has_pool}
    while True:
        more = {each.name for each in classes if modules.intersection(each.bases)} - modules
        heirs = {each.name for each in classes if pooled.intersection(each.bases)} - pooled
        if not more and not heirs:
            break
        modules |= more
        pooled |= heirs
    return [replace(each, has_pool=each.name in pooled) for each in classes if each.name in modules]


def _differing(classes: Sequence[PoolClass]) -> Mapping[str, tuple[str, ...]]:
    """Methods of pools that do the same under different names."""
    differing: dict[str, tuple[str, ...]] = {}
    for methods in ([(each.name, each.hands_out) for each in classes if each.hands_out],
                    [(each.name, each.takes_back) for each in classes if each.takes_back]):  # fmt: skip
        if methods and not set.intersection(*(set(names) for _, names in methods)):
            for method in dict.fromkeys(name for _, names in methods for name in names):
                differing[method] = tuple(owner for owner, names in methods if method in names)
    return differing


def renamed(found: PoolCensus, names: Mapping[str, str]) -> PoolCensus:
    """The same census with its files called otherwise."""
    placed = ("classes", "switches", "calls", "unused_factories", "modules_without_pool")
    parts: dict[str, Any] = {
        part: tuple(replace(each, file=names[each.file]) for each in getattr(found, part)) for part in placed
    }
    return replace(found, **parts)
