"""From a tensor back to the variable that keeps it: a breadth-first search over the garbage collector's referrers."""

import gc
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from memplan.runtime.leaks.heap import local_variables, module_variables
from memplan.runtime.leaks.links import is_a, is_scope, links
from memplan.runtime.leaks.records import Chain, Link

DEPTH = 40
"""References from a variable to what it keeps: longer ones are linked lists, which repeat themselves."""
BREADTH = 2_000
"""Objects at one distance: who is held by more is found through the first of them."""


class Path(NamedTuple):
    """A chain with its objects, to be dropped soon: it keeps them."""

    chain: Chain
    """To be shown."""
    objects: list[Any]
    """From the root's value to the target."""


class Roots(NamedTuple):
    """Where chains may begin."""

    local: dict[int, str]
    """By the address of the value: ``function.variable``."""
    modules: dict[int, str]
    """By the address of a module's globals: its name."""


def roots() -> Roots:
    """All variables there are now, innermost functions first."""
    local: dict[int, str] = {}
    for name, value in local_variables():
        local.setdefault(id(value), name)
    return Roots(local, module_variables())


def path_to(target: Any, known: Roots, seconds: float, own: Iterable[Any] = ()) -> Path:
    """The shortest chain of references to an object.

    After so many seconds the search ends with what it has. ``own`` are containers of the caller's, which hold objects
    only to look at them.

    Returns:
        The chain. Without a root where nothing but a cycle, or C++, keeps the object, or where time ran out.
    """
    skipped, until = {id(each) for each in own}, time.monotonic() + seconds
    for keys in (False, True):  # A key says less than another way, if there is one.
        search = _Search(known, skipped, keys)
        top = search.climb(target, until)
        if top is not None:
            break
    else:
        return search.rootless(target)
    name, objects = search.down_from(top, target)
    variable = Link(kind="variable", name=name, holder="")
    return Path(Chain(links=(variable, *links(objects)), rooted=True), objects)


class _Search:
    def __init__(self, known: Roots, own: set[int], keys: bool) -> None:
        self._known, self._keys = known, keys
        self._child: dict[int, Any] = {}
        """By the address of a holder: what it holds, on the way down."""
        self._seen: dict[int, Any] = {}
        self._own = own | {id(self._child), id(self._seen), id(self.__dict__), id(self)}

    def climb(self, target: Any, until: float) -> Any:
        """The nearest object that a variable holds, or a module's globals; None where there is none."""
        level = [target]
        self._seen[id(target)] = target
        for _ in range(DEPTH):
            for each in level:
                if id(each) in self._known.local or id(each) in self._known.modules:
                    return each
            if not level or time.monotonic() > until:
                return None
            level = self._holders(level)
        return None

    def _holders(self, level: list[Any]) -> list[Any]:
        wanted = {id(each): each for each in level}
        skipped = self._own | {id(level), id(wanted)}
        found: list[Any] = []
        for holder in gc.get_referrers(*level):
            if id(holder) in skipped or id(holder) in self._seen or is_scope(holder):
                continue
            held = dict.values(holder) if is_a(holder, dict) and not self._keys else gc.get_referents(holder)
            child = next((wanted[id(each)] for each in held if id(each) in wanted), None)
            if child is not None:
                self._child[id(holder)] = child
                self._seen[id(holder)] = holder
                found.append(holder)
                if len(found) == BREADTH:
                    break
        return found

    def down_from(self, top: Any, target: Any) -> tuple[str, list[Any]]:
        """Name of the variable, and the objects from its value down to the target."""
        objects = [top]
        while objects[-1] is not target:
            objects.append(self._child[id(objects[-1])])
        if id(top) in self._known.local:
            return self._known.local[id(top)], objects
        below = objects[1]
        variable = next((str(key) for key, value in top.items() if value is below), "?")
        return f"{self._known.modules[id(top)]}.{variable}", objects[1:]

    def rootless(self, target: Any) -> Path:
        """The cycle that keeps it, if there is one among what was seen."""
        import networkx as nx

        graph = nx.DiGraph()
        for address, holder in self._seen.items():
            graph.add_edges_from(
                (address, id(each)) for each in gc.get_referents(holder) if id(each) in self._seen
            )  # fmt: skip
        rings = [ring for ring in nx.strongly_connected_components(graph) if len(ring) > 1 or _loops(graph, ring)]
        if not rings:
            return Path(Chain(links=(), rooted=False), [target])
        ring = min(rings, key=lambda each: self._distance(each, target))
        edges = nx.find_cycle(graph.subgraph(ring))
        around = [self._seen[edge[0]] for edge in edges]
        first = min(around, key=lambda each: self._distance({id(each)}, target))
        turn = around.index(first) if first in around else 0
        _, objects = self._unnamed(first, target)
        start = Link(kind="object", name=f"<{type(first).__qualname__}>", holder="")
        names = [type(each).__qualname__ for each in (*around[turn:], *around[:turn], first)]
        chain = Chain(links=(start, *links(objects)), rooted=False, cycle=tuple(names))
        return Path(chain, [*around, *objects])

    def _unnamed(self, top: Any, target: Any) -> tuple[str, list[Any]]:
        objects = [top]
        while objects[-1] is not target and len(objects) <= DEPTH:
            objects.append(self._child[id(objects[-1])])
        return "", objects

    def _distance(self, ring: set[int], target: Any) -> int:
        return min(len(self._unnamed(self._seen[each], target)[1]) for each in ring)


def _loops(graph: Any, ring: set[int]) -> bool:
    return any(graph.has_edge(each, each) for each in ring)
