"""Rematerialisation problems from files: networkx node-link JSON, as the field exchanges them.

Two dialects are told apart by the fields of their nodes. Checkmate's graphs carry ``cost_cpu`` and ``cost_ram`` under
an ``id`` and come in any order: networkx sorts them. Moccasin's random layered graphs carry ``duration`` and
``out_cost`` under a ``name``, keep their edges under ``"0"`` and ``"1"``, and state their order in ``graph.order``.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from memplan.errors import UsageError
from memplan.files.documents import read_json
from memplan.files.read import UnreadableError
from memplan.plan.checkpoint.schedule.answer import GraphAnswer, answer_of, budget_of
from memplan.plan.checkpoint.schedule.figures import figures_of, unplanned
from memplan.plan.checkpoint.schedule.records import RematGraph
from memplan.plan.checkpoint.schedule.solve import solve_schedule

_HINT = "give a networkx node-link JSON file of a directed acyclic graph with the costs and sizes of its nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dialect:
    """The field names of one kind of file."""

    key: str
    """What edges call a node by."""
    label: str
    """What people call it by."""
    cost: str
    """Time of computing it."""
    size: str
    """Bytes of its value."""
    source: str
    """The edge's node that is read."""
    target: str
    """The edge's node that reads."""


_CHECKMATE = _Dialect(key="id", label="name", cost="cost_cpu", size="cost_ram", source="source", target="target")
_LAYERED = _Dialect(key="name", label="name", cost="duration", size="out_cost", source="0", target="1")


def read_instance(path: Path) -> RematGraph:
    """Read one problem from a file in either dialect, its nodes in the file's order of computation.

    Raises:
        UsageError: The file cannot be read, or is not such a graph; it says what is wrong and where.
    """
    try:
        document = read_json(path)
    except UnreadableError as error:
        raise UsageError(f"cannot read the graph: {error}", where=str(path), hint=_HINT) from error
    return _Reader(path).graph(document)


class _Reader:
    """Turns the parsed document into a graph; knows the path for its complaints."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def graph(self, document: object) -> RematGraph:
        root = self._mapping(document, "the file")
        nodes = [self._mapping(node, f"nodes[{index}]") for index, node in enumerate(self._list(root, "nodes"))]
        # networkx 3.6 calls them edges, older ones links.
        edges_field = "links" if "links" in root else "edges"
        edges = [
            self._mapping(edge, f"{edges_field}[{index}]") for index, edge in enumerate(self._list(root, edges_field))
        ]
        if not nodes:
            raise self._error("the graph has no nodes", "nodes")
        dialect = self._dialect(nodes[0])
        by_key = self._by_key(nodes, dialect)
        pairs = [self._pair(edge, f"{edges_field}[{index}]", by_key, dialect) for index, edge in enumerate(edges)]
        order = self._order(root, by_key, pairs, dialect)
        return self._build(nodes, pairs, order, by_key, dialect)

    def _dialect(self, node: Mapping[str, object]) -> _Dialect:
        for dialect in (_CHECKMATE, _LAYERED):
            if dialect.cost in node or dialect.size in node:
                return dialect
        raise self._error("a node has neither cost_cpu and cost_ram nor duration and out_cost", "nodes[0]")

    def _by_key(self, nodes: Sequence[Mapping[str, object]], dialect: _Dialect) -> dict[str | int, int]:
        by_key: dict[str | int, int] = {}
        for index, node in enumerate(nodes):
            key = self._key(node, dialect.key, f"nodes[{index}]")
            if key in by_key:
                raise self._error(f"two nodes have the {dialect.key} {key!r}", f"nodes[{index}]")
            by_key[key] = index
        return by_key

    def _pair(
        self, edge: Mapping[str, object], where: str, by_key: Mapping[str | int, int], dialect: _Dialect
    ) -> tuple[int, int]:
        ends = [self._key(edge, field, where) for field in (dialect.source, dialect.target)]
        for end in ends:
            if end not in by_key:
                raise self._error(f"an edge names the node {end!r}, which is not there", where)
        return by_key[ends[0]], by_key[ends[1]]

    def _order(
        self,
        root: Mapping[str, object],
        by_key: Mapping[str | int, int],
        pairs: Sequence[tuple[int, int]],
        dialect: _Dialect,
    ) -> list[int]:
        if dialect is _CHECKMATE:
            return self._sorted(len(by_key), pairs)
        stated = self._list(self._mapping(root.get("graph"), "graph"), "order", "graph.order")
        known = [key for key in stated if isinstance(key, str | int) and key in by_key]
        order = [by_key[key] for key in known]
        if len(order) != len(stated) or sorted(order) != list(range(len(by_key))):
            raise self._error("the order does not name each node once", "graph.order")
        place = {index: position for position, index in enumerate(order)}
        for index, (source, target) in enumerate(pairs):
            if place[source] >= place[target]:
                raise self._error("the order has a node before one that it reads", f"links[{index}]")
        return order

    def _sorted(self, count: int, pairs: Sequence[tuple[int, int]]) -> list[int]:
        import networkx as nx

        graph = nx.DiGraph()
        graph.add_nodes_from(range(count))
        graph.add_edges_from(pairs)
        try:
            return list(nx.topological_sort(graph))
        except nx.NetworkXUnfeasible:
            cycle = " -> ".join(str(source) for source, _ in nx.find_cycle(graph))
            raise self._error(f"the graph has a cycle through the nodes {cycle}", "links") from None

    def _build(
        self,
        nodes: Sequence[Mapping[str, object]],
        pairs: Sequence[tuple[int, int]],
        order: Sequence[int],
        by_key: Mapping[str | int, int],
        dialect: _Dialect,
    ) -> RematGraph:
        keys = list(by_key)
        place = {index: position for position, index in enumerate(order)}
        reads: list[set[int]] = [set() for _ in order]
        for source, target in pairs:
            reads[place[target]].add(place[source])
        return RematGraph(
            names=tuple(str(nodes[index].get(dialect.label, keys[index])) for index in order),
            sizes=tuple(
                int(self._number(nodes[index], dialect.size, f"nodes[{index}]", whole=True)) for index in order
            ),
            costs=tuple(self._number(nodes[index], dialect.cost, f"nodes[{index}]") for index in order),
            predecessors=tuple(tuple(sorted(sources)) for sources in reads),
        )

    def _mapping(self, value: object, where: str) -> Mapping[str, object]:
        if not isinstance(value, dict):
            raise self._error("this is not an object", where)
        return value

    def _list(self, parent: Mapping[str, object], field: str, where: str = "") -> list[object]:
        value = parent.get(field)
        if not isinstance(value, list):
            raise self._error(f"'{field}' is not a list", where or field)
        return value

    def _key(self, parent: Mapping[str, object], field: str, where: str) -> str | int:
        value = parent.get(field)
        # True equals 1 as a key, which would join two nodes.
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise self._error(f"'{field}' is neither a text nor a whole number", where)
        return value

    def _number(self, node: Mapping[str, object], field: str, where: str, *, whole: bool = False) -> float:
        value = node.get(field)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
            raise self._error(f"'{field}' is not a number of zero or more", where)
        if whole and value != int(value):
            raise self._error(f"'{field}' is not a whole number of bytes", where)
        # Ids of C++ are 64 bits wide, and so are the bytes of any machine.
        if value >= 2**62:
            raise self._error(f"'{field}' is beyond 64 bits", where)
        return value if whole else float(value)

    def _error(self, what: str, where: str) -> UsageError:
        return UsageError(what, where=f"{self._path}: {where}", hint=_HINT)


def plan_graph(path: Path, *, budget: int | None, ratio: float | None, time_limit: float) -> GraphAnswer:
    """Solve a graph from a file.

    Args:
        path: networkx node-link JSON, in Checkmate's or Moccasin's dialect.
        budget: Peak in bytes at most; or
        ratio: the same as a share of the peak of the graph's own order, rounded down.
        time_limit: Seconds for the search.

    Raises:
        UsageError: The file is no such graph, or not exactly one of budget and ratio is given.
    """
    graph = read_instance(path)
    before = figures_of(graph, unplanned(graph))
    limit = budget_of(before, budget, ratio)
    started = time.perf_counter()
    result = solve_schedule(graph, limit, time_limit=time_limit)
    seconds = time.perf_counter() - started
    return answer_of(graph, before, result, target=str(path), budget=limit, seconds=seconds)
