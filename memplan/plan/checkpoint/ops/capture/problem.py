"""The rematerialization problem of a joint graph.

Every storage that an op makes is a value; views cost nothing and are part of what they look at. Of an op with several
results the largest is computed by the op; the others come with it, stay until their last use and are never computed
again (statistics of a normalisation are small; gradients of several inputs are computed once anyway).
Between forward and backward stands one node of no size that reads all of forward's results, so that a schedule can be
cut there. Forward's results, random numbers, effects and gradients are computed once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memplan.plan.checkpoint.ops.capture.capture import JointGraph
from memplan.plan.checkpoint.ops.capture.cost import Cost
from memplan.plan.checkpoint.ops.capture.values import (
    Computation,
    GraphValues,
    has_effect,
    ignores_statistics,
    is_mutating,
    runs_once,
    storages,
    values_of,
)
from memplan.plan.checkpoint.schedule.ordered import ordered, useful
from memplan.plan.checkpoint.schedule.records import RematGraph, Schedule
from memplan.runtime.partition.split import Order, is_backward_input

if TYPE_CHECKING:
    from torch.fx import Node

BOUNDARY = "end of forward"
"""Name of the node between forward and backward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JointProblem:
    """A problem and what its nodes are."""

    graph: RematGraph
    """Parameters, arguments and tangents are its fixed bytes; forward's results and gradients its outputs."""
    nodes: "tuple[tuple[Node, ...], ...]"
    """What runs for each node of the problem; nothing for the boundary."""
    boundary: int
    """The node between forward and backward."""
    companions: tuple[tuple[int, ...], ...]
    """Further results that come with each node's first computation."""

    def settled(self, schedule: Schedule) -> Schedule:
        """The schedule as it will run: an op's further results come with its first run, and nothing runs unread."""
        together = {each for companions in self.companions for each in companions}
        order: list[int] = []
        done: set[int] = set()
        for node in schedule.nodes:
            if node not in together:
                order += (node,) if node in done else (node, *self.companions[node])
                done.add(node)
        problem = ordered(self.graph, range(len(self.graph.names)))
        return problem.schedule(useful(problem, problem.numbers(Schedule(nodes=tuple(order)))))

    def order(self, schedule: Schedule) -> Order:
        """Return the order of a schedule's nodes in forward and in backward."""
        cut = schedule.nodes.index(self.boundary)
        forward, backward = (
            tuple(node for number in part for node in self.nodes[number])
            for part in (schedule.nodes[:cut], schedule.nodes[cut + 1 :])
        )
        return Order(forward=forward, backward=backward)


def problem_of(joint: JointGraph, cost: Cost) -> JointProblem:
    """State the problem of a joint graph in the graph's own order: all of forward first."""
    return _Statement(joint, cost).problem()


class _Statement:
    """A problem in the making."""

    def __init__(self, joint: JointGraph, cost: Cost) -> None:
        from memplan.seam.pytree import tree_leaves

        self.joint = joint
        self.values = values_of(joint.module)
        self.cost = cost
        results = tree_leaves(joint.module.graph.output_node().args[0])
        self.forward_results = self._storages(results[: joint.forward_outputs])
        self.gradients = self._storages(results[joint.forward_outputs :])
        self.needs_tangents = _needs_tangents(joint)
        self.written = _written(self.values)
        self.number: dict[int, int] = {}
        self.names: list[str] = []
        self.sizes: list[int] = []
        self.costs: list[float] = []
        self.scratch: list[int] = []
        self.predecessors: list[tuple[int, ...]] = []
        self.nodes: list[tuple[Node, ...]] = []
        self.companions: list[tuple[int, ...]] = []
        self.pinned: set[int] = set()
        self.effects: list[int] = []

    def _storages(self, results: Sequence[object]) -> set[int]:
        from torch.fx import Node

        return {each for node in results if isinstance(node, Node) for each in self.values.storages_of(node)}

    def problem(self) -> JointProblem:
        """Number all values and collect what is known of them."""
        forward, backward = self._halves()
        for computation in forward:
            self._add(computation)
        before = {self.number[storage] for storage in self.forward_results} | set(self.effects)
        boundary = self._append(BOUNDARY, 0, 0.0, before, (), pinned=True)
        for computation in backward:
            tagged = has_backward_tag(computation.node)
            starts = tagged or self._reads_tangents(computation.node)
            late = tagged or computation.node in self.needs_tangents
            self._add(computation, {boundary} if starts else set(), pinned=late)
        outputs = {self.number[storage] for storage in self.forward_results | self.gradients}
        graph = RematGraph(
            names=tuple(self.names),
            sizes=tuple(self.sizes),
            costs=tuple(self.costs),
            predecessors=tuple(self.predecessors),
            scratch=tuple(self.scratch),
            fixed_bytes=sum(self.values.inputs.values()),
            pinned=frozenset(self.pinned | {self.number[storage] for storage in self.forward_results}),
            outputs=frozenset(outputs),
        )
        return JointProblem(graph=graph, nodes=tuple(self.nodes), boundary=boundary, companions=tuple(self.companions))

    def _halves(self) -> tuple[list[Computation], list[Computation]]:
        """Forward is what its results need, and whatever stands before the first op that needs tangents."""
        needed = _ancestors(self.values, self.forward_results)
        forward: list[Computation] = []
        backward: list[Computation] = []
        for computation in self.values.computations:
            node = computation.node
            is_late = node in self.needs_tangents or has_backward_tag(node)
            early = not backward or id(computation) in needed or node.target is _copy()
            (backward if is_late or not early else forward).append(computation)
        return forward, backward

    def _add(self, computation: Computation, after: Iterable[int] = (), *, pinned: bool = False) -> None:
        node = computation.node
        read = {self.number[storage] for storage in self.values.storages_read(node)} | set(after)
        taken = sorted(computation.accessors, key=lambda each: -computation.sizes.get(each, 0))
        first, rest = taken[:1], taken[1:]
        once = pinned or runs_once(node) or self._reads_what_is_written(node)
        extra = computation.unread_bytes + sum(computation.sizes[storage] for storage in rest)
        accessors = tuple(computation.accessors[each] for each in first if computation.accessors[each] is not node)
        size = computation.sizes[first[0]] if first else 0
        main = self._append(node.name, size, self.cost(node), read, (node, *accessors), scratch=extra, pinned=once)
        self.number.update(dict.fromkeys(first, main))
        for storage in rest:
            accessor = computation.accessors[storage]
            self.number[storage] = self._append(
                accessor.name, computation.sizes[storage], 0.0, {main}, (accessor,), pinned=True
            )
        self.companions[main] = tuple(self.number[storage] for storage in rest)
        if not computation.sizes:
            self.effects.append(main)

    def _append(
        self,
        name: str,
        size: int,
        cost: float,
        read: Iterable[int],
        nodes: "tuple[Node, ...]",
        *,
        scratch: int = 0,
        pinned: bool = False,
    ) -> int:
        number = len(self.names)
        self.names.append(name)
        self.sizes.append(size)
        self.costs.append(cost)
        self.scratch.append(scratch)
        self.predecessors.append(tuple(sorted(read)))
        self.nodes.append(nodes)
        self.companions.append(())
        if pinned:
            self.pinned.add(number)
        return number

    def _reads_tangents(self, node: "Node") -> bool:
        """Does it read a tangent, or a view of one, rather than what was computed of one?"""
        sources = [source for source in node.all_input_nodes if source not in self.values.computation_of]
        return any(is_backward_input(source) or self._reads_tangents(source) for source in sources)

    def _reads_what_is_written(self, node: "Node") -> bool:
        """An input that forward overwrites cannot be read again in backward."""
        read = {storage for source in node.all_input_nodes for storage in storages(source)}
        return bool(read & self.written) and not ignores_statistics(node)


def has_backward_tag(node: "Node") -> bool:
    """Was an op traced while backward ran, and has it an effect? (torch/_functorch/partitioners.py)."""
    tag = node.meta.get("partitioner_tag")
    return tag == "must_be_in_backward" or (tag == "is_backward" and has_effect(node))


def _copy() -> object:
    import torch

    return torch.ops.aten.copy_.default


def _needs_tangents(joint: JointGraph) -> "set[Node]":
    found: set[Node] = set()
    for node in joint.module.graph.nodes:
        tangent = is_backward_input(node)
        if tangent or any(source in found for source in node.all_input_nodes):
            found.add(node)
    return found


def _written(values: GraphValues) -> set[int]:
    """Inputs that ops of the graph overwrite."""
    return {
        storage
        for computation in values.computations
        if is_mutating(computation.node)
        for storage in storages(computation.node)
        if storage in values.inputs
    }


def _ancestors(values: GraphValues, results: set[int]) -> set[int]:
    """``id`` of every computation that some storages need."""
    found: dict[int, Computation] = {}
    waiting = [values.maker[storage] for storage in results]
    while waiting:
        computation = waiting.pop()
        if id(computation) not in found:
            found[id(computation)] = computation
            waiting += [values.maker[storage] for storage in values.storages_read(computation.node)]
    return set(found)
