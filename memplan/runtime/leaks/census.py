"""Who is still there of those that were born in the sampled steps, where they were born, and who keeps them."""

import gc
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from memplan.runtime.leaks.births import Birth
from memplan.runtime.leaks.causes import Evidence, cause
from memplan.runtime.leaks.chains import Path, path_to, roots
from memplan.runtime.leaks.heap import TensorHolder, holders
from memplan.runtime.leaks.records import Chain, Link, Site

SITES = 8
"""Places with most bytes that are followed to their roots."""
TRIES = 3
"""Holders of one storage that are tried until one leads to a variable."""


class Census(NamedTuple):
    """Of one moment."""

    sites: tuple[Site, ...]
    """Most bytes first."""
    classes: tuple[tuple[int, int, int], ...]
    """By size class: upper bound, storages, bytes."""
    steps: int
    """Sampled ones."""
    nbytes: int
    """All that stayed."""
    collected: int
    """Of these, what the garbage collector then freed."""


def census(births: Sequence[Birth], steps: int, device: str, seconds: float) -> Census:
    """Look at the survivors, then let the garbage collector run and see whom it takes.

    The births are of so many sampled steps; the search for chains is bounded to so many seconds, roughly.
    """
    alive = [each for each in births if each.alive]
    groups: dict[tuple[object, str], list[Birth]] = defaultdict(list)
    for birth in alive:
        groups[birth.place, birth.op].append(birth)
    ranked = sorted(groups.values(), key=lambda group: -sum(each.nbytes for each in group))
    until = time.monotonic() + seconds
    kept = _kept(ranked[:SITES], device, until)
    gc.collect()
    sites = tuple(_site(group, kept[at] if at < len(kept) else _UNKNOWN, steps) for at, group in enumerate(ranked))
    return Census(
        sites, _classes(alive), steps, sum(each.nbytes for each in alive),
        sum(each.nbytes for each in alive if not each.alive),
    )  # fmt: skip


_UNKNOWN = (Chain(links=(), rooted=False), "ML019")


def _kept(groups: Iterable[Sequence[Birth]], device: str, until: float) -> list[tuple[Chain, str]]:
    """Chain and cause of each group. All Python objects of the search are gone when this returns."""
    groups = list(groups)
    if not groups:
        return []
    wanted = {each.storage.cdata for group in groups for each in group}
    search = _Paths(holders(wanted, device, max(0.1, (until - time.monotonic()) / 2)), until)
    return [search.chain_and_cause(group) for group in groups]


class _Paths:
    """Paths to the holders of several groups; those of a graph have the same holder."""

    def __init__(self, found: dict[int, list[TensorHolder]], until: float) -> None:
        self._found, self._until = found, until
        self._roots = roots()
        self._paths: dict[int, Path] = {}

    def chain_and_cause(self, group: Sequence[Birth]) -> tuple[Chain, str]:
        birth = group[len(group) // 2]
        candidates = self._found[birth.storage.cdata]
        if not candidates:
            return _UNKNOWN
        # Of those without a variable, the last says most: a parameter's gradient rather than the tensor alone.
        tried = candidates[:TRIES]
        best = next((each for each in tried if self._path(each).chain.rooted), None)
        best = best or next((each for each in tried if self._path(each).chain.cycle), tried[-1])
        path = self._path(best)
        chain = _extended(path.chain, best)
        return chain, cause(Evidence(chain, path.objects, best.tensor, self._is_shared(best, birth, group)))

    def _path(self, holder: TensorHolder) -> Path:
        if not holder.held:
            return Path(_UNKNOWN[0], [holder.tensor])
        if id(holder.tensor) not in self._paths:
            own = [self._found, self._paths, *self._found.values()]
            own += [each for several in self._found.values() for each in several]
            own += [part for path in self._paths.values() for part in (path, path.objects)]
            left = max(0.05, self._until - time.monotonic())
            self._paths[id(holder.tensor)] = path_to(holder.tensor, self._roots, left, own)
        return self._paths[id(holder.tensor)]

    def _is_shared(self, holder: TensorHolder, birth: Birth, group: Sequence[Birth]) -> bool:
        """Does the same tensor keep what was born in another step?"""
        others = (each for each in group if each.step != birth.step)
        return any(each.tensor is holder.tensor for other in others for each in self._found[other.storage.cdata])


def _extended(chain: Chain, holder: TensorHolder) -> Chain:
    if not holder.suffix:
        return chain
    start = chain.links or (Link(kind="object", name=f"<{type(holder.tensor).__qualname__}>", holder=""),)
    more = Link(kind="graph" if holder.nodes else "attribute", name=holder.suffix, holder="torch.Tensor")
    return Chain(links=(*start, more), rooted=chain.rooted, graph_nodes=holder.nodes, cycle=chain.cycle)


def _site(group: Sequence[Birth], kept: tuple[Chain, str], steps: int) -> Site:
    first, nbytes = group[0], sum(each.nbytes for each in group)
    chain, code = kept
    return Site(
        place=first.place, op=first.op, shape=first.shape, dtype=first.dtype, storages=len(group), nbytes=nbytes,
        bytes_per_step=nbytes / steps, steps=len({each.step for each in group}), chain=chain, code=code,
        collected=not any(each.alive for each in group),
    )  # fmt: skip


def _classes(births: Iterable[Birth]) -> tuple[tuple[int, int, int], ...]:
    sizes: dict[int, list[int]] = defaultdict(list)
    for birth in births:
        sizes[1 << (birth.nbytes - 1).bit_length()].append(birth.nbytes)
    return tuple((bound, len(each), sum(each)) for bound, each in sorted(sizes.items()))
