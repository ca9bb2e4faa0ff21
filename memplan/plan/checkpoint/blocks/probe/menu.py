"""The options of a block: keep, run all of it again, or keep the results of some of its ops and run the rest again.

A selective block runs every op again whose result it does not keep, up to the last one that backward needs. Its time is
therefore the sum over the others, and its memory the sum over what it keeps: a knapsack, in which ops with much time
per byte come first. The prefixes of that order are the corners of the best trade-offs; a few make the menu.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from memplan.lifetime.roofline import Roofline
from memplan.plan.checkpoint.blocks.probe.read import BlockRun, StepReading, rounding
from memplan.runtime.checkpoint.records import Action, SavedOp
from memplan.tracing.records import Op, Trace
from memplan.units import StorageId

MOST_SELECTIVE = 6
"""Selective options of a kind of block: more corners of the same curve bring little, and each must be traced."""
_NEVER = frozenset({"aten._to_copy.default", "aten._pack_padded_sequence.default"})
"""Autocast remembers casts of weights, so that they may come fewer times in one run than in another; kernels of packed
sequences read sizes on the host, which a trace keeps without values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionCandidate:
    """An option before it is traced."""

    action: Action
    """What the block does."""
    saved: tuple[SavedOp, ...] = ()
    """What it keeps, if selective."""


KEEP = OptionCandidate(action=Action.KEEP)
CHECKPOINT = OptionCandidate(action=Action.CHECKPOINT)
OFFLOAD = OptionCandidate(action=Action.OFFLOAD)


class _Item(NamedTuple):
    """Op calls that are kept together or not at all."""

    calls: tuple[tuple[str, int], ...]
    nbytes: int
    seconds: float


def menu(
    reading: StepReading, run: BlockRun, roofline: Roofline, *, selective: bool, offload: bool
) -> tuple[OptionCandidate, ...]:
    """The options of a block."""
    options = [KEEP, CHECKPOINT]
    if selective:
        sets = _save_sets(_items(reading, run, roofline), _kept(reading, run))
        options += [OptionCandidate(action=Action.SELECTIVE, saved=_saved(calls)) for calls in sets]
    return tuple(options + [OFFLOAD] * offload)


def _saved(calls: Iterable[tuple[str, int]]) -> tuple[SavedOp, ...]:
    by_op: dict[str, list[int]] = defaultdict(list)
    for op, call in calls:
        by_op[op].append(call)
    return tuple(SavedOp(op=op, calls=tuple(sorted(found))) for op, found in sorted(by_op.items()))


def _save_sets(items: Sequence[_Item], most_bytes: int) -> list[list[tuple[str, int]]]:
    """Prefixes of the items by time per byte: those whose corners stand out most from the curve.

    ``most_bytes`` are what the block keeps by itself; to keep as much and run things again would be absurd.
    """
    order = sorted(items, key=lambda item: item.seconds / item.nbytes, reverse=True)
    corners = [(0, 0.0)]
    for item in order:
        if corners[-1][0] + item.nbytes >= most_bytes:
            break
        corners.append((corners[-1][0] + item.nbytes, corners[-1][1] + item.seconds))
    return [
        [call for item in order[:length] for call in item.calls] for length in _outstanding(corners, MOST_SELECTIVE)
    ]


def _outstanding(corners: Sequence[tuple[int, float]], count: int) -> list[int]:
    """Indices of the corners that a polyline from the first to the last one needs most, in order."""
    chosen = sorted({0, len(corners) - 1})
    while len(chosen) < count + 1:
        gaps = [
            (_above(corners[left], corners[right], corners[index]), index)
            for left, right in pairwise(chosen)
            for index in range(left + 1, right)
        ]
        if not gaps:
            break
        chosen = sorted([*chosen, max(gaps)[1]])
    return [index for index in chosen if index]


def _above(left: tuple[int, float], right: tuple[int, float], point: tuple[int, float]) -> float:
    """Seconds that a corner lies above the line between two others."""
    share = (point[0] - left[0]) / (right[0] - left[0])
    return point[1] - left[1] - share * (right[1] - left[1])


def _items(reading: StepReading, run: BlockRun, roofline: Roofline) -> list[_Item]:
    """Return what a block may keep; random ops only together: one that runs again draws what the others left it."""
    forward = reading.cut.stretches[run.forward]
    ops = reading.trace.ops[forward.first_op : forward.end_op]
    made, size = _fresh(reading.trace, ops), rounding(reading.trace)
    functions = _functions(reading.trace, ops)
    changed, results = _changed(ops, made, functions), set(_passed_on(reading, run))
    last, calls = _last_needed(reading, run, ops, made), Counter[str]()
    items: list[_Item] = []
    random: list[_Item | None] = []
    for op in ops:
        call, calls[op.name] = calls[op.name], calls[op.name] + 1
        fresh = made.get(op.index, ())
        can = bool(fresh) and not (changed | results) & set(fresh) and op.name not in _NEVER
        item = _Item(
            calls=((op.name, call),),
            nbytes=sum(size(reading.trace.storages[storage].nbytes) for storage in fresh),
            seconds=roofline.seconds(op),
        )
        is_usable = can and item.nbytes > 0 and item.seconds > 0
        if _is_random(functions.get(op.index)):
            random.append(item if is_usable else None)
        elif is_usable and op.index <= last:
            items.append(item)
    return items + _together(random)


def _together(random: Sequence[_Item | None]) -> list[_Item]:
    usable = [item for item in random if item is not None]
    if not usable or len(usable) < len(random):
        return []
    return [
        _Item(
            calls=tuple(call for item in usable for call in item.calls),
            nbytes=sum(item.nbytes for item in usable),
            seconds=sum(item.seconds for item in usable),
        )
    ]


def _fresh(trace: Trace, ops: Sequence[Op]) -> Mapping[int, tuple[StorageId, ...]]:
    """For each op the storages that it makes and returns; views and in-place ops make none."""
    return {
        op.index: tuple(
            storage
            for storage in dict.fromkeys(op.writes)
            if trace.storages[storage].birth == op.index and trace.storages[storage].place == "device"
        )
        for op in ops
    }


def _changed(
    ops: Sequence[Op], made: Mapping[int, tuple[StorageId, ...]], functions: Mapping[int, Any]
) -> set[StorageId]:
    """Storages that a later op writes into: what is kept must not change."""
    return {
        storage
        for op in ops
        if not _only_hands_on(functions.get(op.index))
        for storage in op.writes
        if storage not in made[op.index]
    }


def _only_hands_on(node: Any) -> bool:
    """Does this call leave its arguments as they are, though it returns one's storage as its result?

    ``_unsafe_view`` does, which comes after every product without a bias.
    """
    schema = getattr(getattr(node, "target", None), "_schema", None)
    return schema is not None and not schema.is_mutable


def _kept(reading: StepReading, run: BlockRun) -> int:
    return sum(reading.lives[storage].nbytes for storage in run.results.values())


def _passed_on(reading: StepReading, run: BlockRun) -> Iterable[StorageId]:
    own = {run.forward, run.backward}
    return (storage for storage in run.results.values() if reading.uses.get(storage, frozenset()) - own)


def _last_needed(
    reading: StepReading, run: BlockRun, ops: Sequence[Op], made: Mapping[int, tuple[StorageId, ...]]
) -> int:
    """The last op that runs again: beyond it backward needs nothing, and the second run stops.

    It stops as soon as the last tensor is saved. What is not made here (a weight) is saved before the op that reads it.
    """
    backward = reading.cut.stretches[run.backward]
    needed = {storage for op in reading.trace.ops[backward.first_op : backward.end_op] for storage in op.reads}
    own = {storage for fresh in made.values() for storage in fresh}
    saving = (op for op in ops if needed & ({*op.reads} - own | {*op.writes}))
    return max((op.index if needed & {*op.writes} else op.index - 1 for op in saving), default=-1)


def _functions(trace: Trace, ops: Sequence[Op]) -> dict[int, Any]:
    """The graph's node of each op, where the trace has a graph."""
    if trace.graph is None:
        return {}
    wanted = range(ops[0].index, ops[-1].index + 1) if ops else range(0)
    nodes: dict[int, Any] = {}
    for node in trace.graph.nodes:
        if node.op is not None and node.op.index in wanted:
            nodes[node.op.index] = node
    return nodes


def _is_random(node: Any) -> bool:
    """Does this call draw random numbers? Attention says so only where it drops."""
    if node is None or not hasattr(node.target, "tags"):
        return False
    import torch

    if torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    names = [argument.name for argument in node.target._schema.arguments]  # noqa: SLF001 - no public way to a schema.
    given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    if "dropout_p" in names:
        return bool(given.get("dropout_p", 0.0))
    return True
