"""All solvers together: what is cheap first, what is slow only where it matters, and a check at the end.

    problem ─► orderings ─► parts that never meet and end above the goal ─► schedule ─► one placement
                            (highest first)

A part is good enough at the goal: the capacity, or the highest of what bounds all parts and what another came to.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec

from memplan.errors import MemplanError
from memplan.plan.reuse import greedy
from memplan.plan.reuse.bound import HeightBound, lower_bound
from memplan.plan.reuse.check import contradiction, problems_of
from memplan.plan.reuse.decompose import joined, part_of, placed, sections_of
from memplan.plan.reuse.records import (
    ArenaPlacement,
    FeasiblePlacement,
    InfeasiblePlacement,
    OptimalPlacement,
    Problem,
    Result,
)
from memplan.plan.reuse.result import best_of, bound_of, ended
from memplan.units import Bytes

FEW = 5_000
"""Beyond so many buffers the exact search hardly ever ends, and takes long to begin."""
SCHEDULE_OF_FEW = (("first pushes", 1.0), ("search", 0.5), ("improve", 0.5), ("cp_sat", 0.3), ("search", 1.0))
"""Method, and the share that it gets of the time that is left."""
SCHEDULE_OF_MANY = (("improve", 1.0),)
"""The same for more buffers."""
NEEDS = {"cp_sat": "ortools"}
"""What a method cannot do without; it is passed over where that is not there."""


@dataclass(slots=True, kw_only=True)
class ProblemPart:
    """Buffers that none of another part meets, and what is known of them up to here."""

    section: tuple[int, ...]
    """Where they stand in the problem."""
    problem: Problem
    """They alone, with the goal as capacity."""
    bound: HeightBound
    """Below which they cannot be placed."""
    best: ArenaPlacement
    """The lowest placement known."""
    method: str
    """Who found it."""

    def learn(self, result: Result) -> None:
        """Keep what a solver found, if it is better."""
        found = best_of(result)
        if found is not None and found.height < self.best.height:
            self.best, self.method = found, getattr(result, "method", self.method)
        if bound_of(result) > self.bound.bytes:
            reason = result.reason if isinstance(result, InfeasiblePlacement) else "a search excluded all below"
            self.bound = HeightBound(bytes=Bytes(bound_of(result)), reason=reason)


def solve(problem: Problem, *, time_limit: float) -> Result:
    """Place buffers as low as the time allows, or low enough for the capacity.

    One ordering is tried to its end even if that takes longer than the time limit.

    Raises:
        MemplanError: A solver's placement is wrong, by a check of its own.
        UsageError: The offsets may need more than 64 bits.
    """
    deadline = time.monotonic() + time_limit
    bound = lower_bound(problem)
    if reason := contradiction(problem):
        return InfeasiblePlacement(reason=reason, bound=bound.bytes)
    few = len(problem.buffers) <= FEW
    # Many buffers have pushes as soon as there is something to push: there an ordering takes seconds.
    first = greedy.solve(replace(problem, capacity=None), time_limit=time_limit if few else 0)
    # Without a capacity, there is always a placement.
    assert isinstance(first, OptimalPlacement | FeasiblePlacement)  # noqa: S101
    goal = max(bound.bytes, problem.capacity or 0)
    parts: list[ProblemPart] = []
    if problem.capacity is None or bound.bytes <= problem.capacity:
        parts = _above(problem, first, goal)
        _lower(parts, goal, deadline + (_compiled(few) if parts else 0.0))
    placement = joined(problem, [part.section for part in parts], [part.best for part in parts], first.placement)
    if wrong := problems_of(replace(problem, capacity=None), placement):
        raise MemplanError(f"a placement is wrong: {wrong[0]}")
    method = max(parts, key=lambda part: part.best.height).method if parts else first.method
    return ended(problem, placement, max([bound, *(part.bound for part in parts)], key=_bytes), method=method)


def _compiled(search_too: bool) -> float:
    """Have the loops compiled that will be needed, which takes long only after an installation; return the seconds."""
    from memplan.plan.reuse import improve, search

    started = time.monotonic()
    improve.compile_once()
    if search_too:
        search.compile_once()
    return time.monotonic() - started


def _bytes(bound: HeightBound) -> int:
    return bound.bytes


def _above(problem: Problem, first: OptimalPlacement | FeasiblePlacement, goal: int) -> list[ProblemPart]:
    """The parts that end above the goal."""
    found = []
    for section in sections_of(problem):
        part = part_of(problem, section)
        best = placed(part.buffers, [first.placement.offsets[index] for index in section])
        if best.height > goal:
            bound = lower_bound(part)
            found.append(ProblemPart(section=section, problem=part, bound=bound, best=best, method=first.method))
    return found


def _lower(parts: Sequence[ProblemPart], goal: int, deadline: float) -> None:
    """Work on the highest part until it is at the goal, or cannot be lowered: then it is the goal of the others."""
    waiting = sorted(parts, key=lambda part: part.best.height)
    while waiting and waiting[-1].best.height > goal and time.monotonic() < deadline:
        part = waiting.pop()
        time_limit = (deadline - time.monotonic()) / (1 + sum(other.best.height > goal for other in waiting))
        part.problem = replace(part.problem, capacity=goal if goal > part.bound.bytes else None)
        _work(part, goal, time.monotonic() + time_limit)
        goal = max(goal, part.best.height)


def _work(part: ProblemPart, goal: int, deadline: float) -> None:
    for method, share in _schedule(part):
        left = deadline - time.monotonic()
        if part.best.height <= max(goal, part.bound.bytes) or left <= 0:
            return
        part.learn(_run(method, part, left * share))


def _schedule(part: ProblemPart) -> Iterator[tuple[str, float]]:
    for method, share in SCHEDULE_OF_FEW if len(part.problem.buffers) <= FEW else SCHEDULE_OF_MANY:
        if find_spec(NEEDS.get(method, "memplan")):
            yield method, share


def _run(method: str, part: ProblemPart, time_limit: float) -> Result:
    match method:
        case "improve" | "first pushes":
            from memplan.plan.reuse import improve

            rounds = 0 if method == "first pushes" else None
            return improve.solve(part.problem, time_limit=time_limit, start=part.best, rounds=rounds)
        case "search":
            from memplan.plan.reuse import search

            return search.solve(part.problem, time_limit=time_limit, start=part.best)
        case _:
            from memplan.plan.reuse import cp_sat

            return cp_sat.solve(part.problem, time_limit=time_limit)
