"""Placement as rectangles that do not overlap, for Google's CP-SAT (the extra ``solvers``; gaps make several of one).

Time is given, so that only the offsets are variables: in units of what all of them are multiples of, which makes
the domains small. Of two buffers that are alike in all, the first lies lower.
"""

import time
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

from memplan.errors import UsageError
from memplan.plan.reuse import greedy
from memplan.plan.reuse.bound import HeightBound, lower_bound, stretches
from memplan.plan.reuse.decompose import placed
from memplan.plan.reuse.granularity import grain_of
from memplan.plan.reuse.outside import improved_outside
from memplan.plan.reuse.records import ArenaBuffer, ArenaPlacement, Problem, Result
from memplan.plan.reuse.result import best_of, ended
from memplan.units import Bytes

WORKERS = 2
"""Threads of the solver."""


def solve(problem: Problem, *, time_limit: float) -> Result:
    """The lowest placement, or one within the capacity, as CP-SAT finds it.

    The time limit holds for a process, the model and CP-SAT together.

    Raises:
        UsageError: ortools is not installed.
    """
    if find_spec("ortools") is None:
        raise UsageError("CP-SAT is not installed", hint="pip install ortools")
    deadline = time.monotonic() + time_limit
    start, bound = best_of(greedy.solve(problem, time_limit=time_limit / 10)), lower_bound(problem)
    assert start is not None  # noqa: S101 - greedy always places.
    if start.height <= max(bound.bytes, problem.capacity or 0) or bound.bytes > (problem.capacity or bound.bytes):
        return ended(problem, start, bound, method="greedy")
    # ortools and highspy each bring a libhighs.so.1 of their own, and a process has room for one.
    return improved_outside(_improved, problem, start, bound, deadline)


def _improved(problem: Problem, start: ArenaPlacement, bound: HeightBound, deadline: float) -> Result:
    """Improve a placement with CP-SAT; runs in a process of its own."""
    cp_model: Any = import_module("ortools.sat.python.cp_model")
    unit = grain_of(problem)
    # A placement over the capacity is no use: better no answer, and a proof where there is none.
    most = start.height if problem.capacity is None else problem.capacity
    model: Any = cp_model.CpModel()
    offsets = _offsets(model, problem, most // unit, unit)
    _hint(model, problem, offsets, start, unit)
    if problem.capacity is None:
        height = model.new_int_var(-(-bound.bytes // unit), most // unit, "height")
        for buffer, offset in zip(problem.buffers, offsets, strict=True):
            # One of no bytes takes no part in the height, wherever it must lie.
            if buffer.size:
                model.add(offset + buffer.size // unit <= height)
        model.minimize(height)
    solver: Any = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(0.0, deadline - time.monotonic())
    solver.parameters.num_workers = WORKERS
    status = solver.solve(model)
    if status in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
        start = placed(
            problem.buffers, [_value(solver, b, o) * unit for b, o in zip(problem.buffers, offsets, strict=True)]
        )
    return ended(problem, start, _proved(problem, solver, status, bound, unit), method="CP-SAT")


def _offsets(model: Any, problem: Problem, most: int, unit: int) -> list[Any]:
    found, times, places = [], [], []
    for index, buffer in enumerate(problem.buffers):
        size = buffer.size // unit
        if buffer.offset is not None or not size:
            offset = model.new_constant((buffer.offset or 0) // unit)
        else:
            step = max(1, buffer.alignment // unit)
            at = model.new_int_var(0, max(0, (most - size) // step), f"at {index}")
            offset = at * step if step > 1 else at
        found.append(offset)
        for start, end in stretches(buffer) if size else ():
            times.append(model.new_fixed_size_interval_var(start, end - start, f"time {index}"))
            places.append(model.new_fixed_size_interval_var(offset, size, f"place {index}"))
    model.add_no_overlap_2d(times, places)
    for group in _alike(problem.buffers):
        for low, high in pairwise(group):
            model.add(found[low] + problem.buffers[low].size // unit <= found[high])
    return found


def _alike(buffers: Sequence[ArenaBuffer]) -> list[list[int]]:
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, b in enumerate(buffers):
        if b.offset is None and b.size and any(True for _ in stretches(b)):
            groups.setdefault((b.start, b.end, b.size, b.alignment, b.gaps), []).append(index)
    return list(groups.values())


def _hint(model: Any, problem: Problem, offsets: Sequence[Any], start: ArenaPlacement, unit: int) -> None:
    for group in _alike(problem.buffers):
        # Alike ones change places freely: the hint keeps to their order.
        lows = sorted(start.offsets[index] for index in group)
        for index, low in zip(group, lows, strict=True):
            if problem.buffers[index].alignment <= unit:
                model.add_hint(offsets[index], low // unit)


def _value(solver: Any, buffer: ArenaBuffer, offset: Any) -> int:
    return int(solver.value(offset)) if buffer.size or buffer.offset is not None else 0


def _proved(problem: Problem, solver: Any, status: Any, bound: HeightBound, unit: int) -> HeightBound:
    if solver.status_name(status) == "INFEASIBLE" and problem.capacity is not None:
        return HeightBound(
            bytes=Bytes(problem.capacity + 1), reason="CP-SAT excluded every placement within the capacity"
        )
    if problem.capacity is None and solver.status_name(status) in {"OPTIMAL", "FEASIBLE", "UNKNOWN"}:
        proved = round(solver.best_objective_bound) * unit
        if proved > bound.bytes:
            return HeightBound(bytes=Bytes(proved), reason="CP-SAT excluded all below")
    return bound
