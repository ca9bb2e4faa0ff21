"""Cuts the last step of a trace into stretches: the runs of each block, and what lies between them.

ops        e e 0 0 0 1 1 1 h h | h 1 1 1 a 0 0 0 a e | o o
stretches  ─── ───── ───── ───   ─ ─────── ─────── ─   ───
           gap F(0)  F(1)  gap     B(1)    B(0)        optimizer

Ops are told apart by the path of their module (backward ops carry that of their forward) and by phase. What nobody
owns (``a``: a gradient arriving at its parameter) belongs to the block whose backward it follows.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, NamedTuple

from memplan.errors import EstimateError
from memplan.tracing.records import Op, Trace

Phase = Literal["forward", "backward", "optimizer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Consecutive ops of the last step, with the events that fall into them; half-open in both scales."""

    block: int | None
    """The block that runs; None between blocks."""
    phase: Phase
    """Its phase."""
    first_op: int
    end_op: int
    first_event: int
    end_event: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The last step in stretches."""

    modules: tuple[str, ...]
    """Blocks, in the order of their first forward."""
    stretches: tuple[Stretch, ...]
    """All of the step, in order; there are some between any two block runs, be they empty."""
    spans: tuple[tuple[tuple[int, int], ...], ...]
    """For each block, the stretches of its forward and of its backward, one pair for each run."""
    dropped: tuple[str, ...]
    """Modules that cannot be planned: they never run, or their backward runs interleaved with that of others."""


class _Run(NamedTuple):
    module: str
    phase: Phase
    first_op: int
    end_op: int


def cut(trace: Trace, modules: Iterable[str]) -> Cut:
    """Cut the last step of a training trace at the given blocks, none of them inside another."""
    step = trace.steps[-1]
    ops = trace.ops[step.first_op : step.end_op]
    names = tuple(dict.fromkeys(modules))
    usable, dropped = set(names), set[str]()
    while True:
        runs = _runs(ops, _Owners(usable))
        pairs, wrong = _paired(runs, usable)
        if not wrong:
            break
        # Without these the others may come apart.
        usable -= wrong
        dropped |= wrong
    order = tuple(sorted(pairs, key=lambda name: pairs[name][0][0].first_op))
    stretches = tuple(_stretches(trace, ops, runs, order))
    place = {(each.first_op, each.phase): index for index, each in enumerate(stretches) if each.block is not None}
    spans = tuple(
        tuple((place[first.first_op, "forward"], place[second.first_op, "backward"]) for first, second in pairs[name])
        for name in order
    )
    return Cut(modules=order, stretches=stretches, spans=spans, dropped=tuple(n for n in names if n in dropped))


def cut_like(trace: Trace, unplanned: Cut) -> Cut:
    """Cut the last step of a planned run as the unplanned one was.

    A segment runs again before the backward of its last block: what comes before a block's turn belongs to its stretch.

    Raises:
        EstimateError: The blocks do not take turns as they did.
    """
    step = trace.steps[-1]
    ops = trace.ops[step.first_op : step.end_op]
    turns = [(unplanned.modules[each.block], each.phase) for each in unplanned.stretches if each.block is not None]
    runs = _in_turns(_runs(ops, _Owners(set(unplanned.modules))), turns)
    if len(runs) < len(turns):
        raise EstimateError("with blocks checkpointed the step runs its blocks in another order than without")
    stretches = tuple(_stretches(trace, ops, runs, unplanned.modules, _gap_phases(unplanned)))
    return replace(unplanned, stretches=stretches)


def _in_turns(runs: Sequence[_Run], turns: Sequence[tuple[str, Phase]]) -> list[_Run]:
    """One run for each turn, found from the end: only blocks up to its own run again before a block's turn."""
    found: list[_Run] = []
    for run in reversed(runs):
        if len(found) < len(turns) and (run.module, run.phase) == turns[len(turns) - 1 - len(found)]:
            found.append(run)
        elif found:
            found[-1] = found[-1]._replace(first_op=run.first_op)
    return found[::-1]


class _Owners:
    """Finds the block that contains a module path."""

    def __init__(self, names: set[str]) -> None:
        self._names = names
        self._known: dict[str, str | None] = {}

    def of(self, path: str) -> str | None:
        if path not in self._known:
            self._known[path] = self._find(path)
        return self._known[path]

    def _find(self, path: str) -> str | None:
        while path:
            if path in self._names:
                return path
            path = path.rpartition(".")[0]
        return None


def _runs(ops: Sequence[Op], owners: _Owners) -> list[_Run]:
    """Runs of blocks, ops between two runs of the same block included."""
    runs: list[_Run] = []
    phase: Phase | None = None
    for op in ops:
        if op.phase != phase:
            phase, is_new = _phase(op), True
        module = owners.of(op.module)
        if module is None:
            if _is_nobodys(op) and runs and not is_new and runs[-1].end_op == op.index:
                runs[-1] = runs[-1]._replace(end_op=op.index + 1)
            continue
        if runs and not is_new and runs[-1].module == module:
            runs[-1] = runs[-1]._replace(end_op=op.index + 1)
        elif phase != "optimizer":
            runs.append(_Run(module, phase or "forward", op.index, op.index + 1))
        is_new = False
    return runs


def _phase(op: Op) -> Phase:
    return "forward" if op.phase == "setup" else op.phase


def _is_nobodys(op: Op) -> bool:
    return op.phase == "backward" and not op.module and not op.source


def _paired(runs: Sequence[_Run], usable: set[str]) -> tuple[dict[str, list[tuple[_Run, _Run]]], set[str]]:
    """Each block's forward runs with the backward runs that answer them, and blocks for which that fails.

    Within one micro-batch the last forward is differentiated first.
    """
    waiting: dict[str, list[_Run]] = {name: [] for name in usable}
    pairs: dict[str, list[tuple[_Run, _Run]]] = {name: [] for name in usable}
    wrong: set[str] = set()
    for run in runs:
        if run.phase == "forward":
            waiting[run.module].append(run)
        elif waiting[run.module]:
            pairs[run.module].append((waiting[run.module].pop(), run))
        else:
            wrong.add(run.module)
    wrong |= {name for name in usable if waiting[name] or not pairs[name]}
    for found in pairs.values():
        found.sort(key=lambda pair: pair[0].first_op)
    return {name: found for name, found in pairs.items() if found}, wrong


_Piece = tuple[int | None, Phase, int, int]
"""Block, phase, first op, end op."""


def _stretches(
    trace: Trace,
    ops: Sequence[Op],
    runs: Sequence[_Run],
    order: Sequence[str],
    gaps: Sequence[Sequence[Phase]] | None = None,
) -> Iterable[Stretch]:
    """All stretches of the step; with ``gaps``, as many between two runs as these have phases."""
    number = {name: index for index, name in enumerate(order)}
    first, end = trace.steps[-1].first_op, trace.steps[-1].end_op
    whole: list[_Piece] = []
    at = first
    for index, run in enumerate([*runs, None]):
        gap = _gap(ops, first, at, end if run is None else run.first_op)
        whole += gap if gaps is None else _folded(gap, gaps[index])
        if run is not None:
            whole.append((number[run.module], run.phase, run.first_op, run.end_op))
            at = run.end_op
    bounds = _event_bounds(trace, [start for _, _, start, _ in whole])
    for (block, phase, start, stop), (first_event, end_event) in zip(whole, pairwise(bounds), strict=True):
        yield Stretch(
            block=block, phase=phase, first_op=start, end_op=stop, first_event=first_event, end_event=end_event
        )


def _gap_phases(found: Cut) -> list[list[Phase]]:
    """Phases of the stretches before the first run, between any two, and after the last one."""
    gaps: list[list[Phase]] = [[]]
    for stretch in found.stretches:
        if stretch.block is None:
            gaps[-1].append(stretch.phase)
        else:
            gaps.append([])
    return gaps


def _folded(pieces: Sequence[_Piece], phases: Sequence[Phase]) -> list[_Piece]:
    """A gap in the pieces that it has without a plan, which may copy something in it that is not copied otherwise."""
    found: list[_Piece] = []
    left = list(pieces)
    at = pieces[0][2]
    for index, phase in enumerate(phases):
        start = at
        is_last = phase not in phases[index + 1 :]
        while left and left[0][1] == phase:
            at = left.pop(0)[3]
            if not is_last:
                break
        found.append((None, phase, start, at))
    if left:
        found[-1] = (None, found[-1][1], found[-1][2], left[-1][3])
    return found


def _gap(ops: Sequence[Op], first: int, start: int, end: int) -> list[_Piece]:
    """Return the stretches between two runs, one for each phase; an empty one where there is nothing.

    In forward there is one for each module that runs: when a function returns, what its variables held is freed.
    """
    inside = ops[start - first : end - first]
    here = inside[0] if inside else ops[min(start, first + len(ops) - 1) - first]
    found: list[_Piece] = [(None, _phase(here), start, start)]
    module = here.module
    for op in inside:
        block, phase, begin, _ = found[-1]
        if phase == _phase(op) and (phase != "forward" or op.module == module):
            found[-1] = (block, phase, begin, op.index + 1)
        else:
            found.append((None, _phase(op), op.index, op.index + 1))
        module = op.module
    return found


def _event_bounds(trace: Trace, starts: Sequence[int]) -> list[int]:
    """Index of the first event of each stretch, and the end of the step.

    An event after an op and before the next one belongs to the former's stretch; what comes before the step's first
    op, to the first stretch.
    """
    step = trace.steps[-1]
    of_op = [event.op for event in trace.events[step.first_event : step.end_event]]
    bounds = [step.first_event + bisect_right(of_op, start - 1) for start in starts]
    return [step.first_event, *bounds[1:], step.end_event]
