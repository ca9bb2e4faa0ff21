"""Every way of placing buffers, by the name that users type, and a race of several on one problem.

    problem ─► each method, alone and for the whole time limit ─► the validator ─► one row each; the best is the answer

``auto`` is the portfolio, which gives each part of a problem to the methods that are likely to lower it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from memplan.errors import MemplanError, UsageError
from memplan.plan.reuse import colour, cp_sat, greedy, ilp, improve, portfolio, search
from memplan.plan.reuse.answer_records import MethodOutcome
from memplan.plan.reuse.bound import HeightBound, lower_bound
from memplan.plan.reuse.check import contradiction, problems_of
from memplan.plan.reuse.decompose import joined, part_of, sections_of
from memplan.plan.reuse.records import InfeasiblePlacement, Problem, Result
from memplan.plan.reuse.result import best_of, bound_of, ended
from memplan.units import Bytes

MethodName = Literal["auto", "search", "cp-sat", "ilp", "colour", "greedy", "improve"]
ALL = "all"
"""Every method, one after the other."""
NAMES: tuple[str, ...] = (*get_args(MethodName), ALL)
"""What ``--method`` takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementMethod:
    """One way of placing buffers."""

    solve: Callable[[Problem, float], Result]
    """Takes the problem and seconds."""
    note: Callable[[Problem], str] = lambda _: ""
    """What is to be said of it beside heights; empty: nothing."""


def _slots(problem: Problem) -> str:
    return f"whole slots; no plan of such needs less than {colour.slot_bound(problem):,} bytes"


def _ilp(problem: Problem, seconds: float) -> Result:
    """Each part that none of another meets is a program of its own."""
    sections, deadline = sections_of(problem), time.monotonic() + seconds
    results = []
    for count, section in enumerate(sections):
        left = max(0.0, deadline - time.monotonic()) / (len(sections) - count)
        results.append(ilp.solve(part_of(problem, section), time_limit=left))
    if not results:
        return ilp.solve(problem, time_limit=seconds)
    placements = [found for each in results if (found := best_of(each)) is not None]
    bound = max([lower_bound(problem), *map(_bound, results)], key=lambda found: found.bytes)
    proved_by = {getattr(each, "method", "") for each in results}
    return ended(problem, joined(problem, sections, placements), bound, method=" and ".join(sorted(proved_by)))


def _bound(result: Result) -> HeightBound:
    return HeightBound(bytes=Bytes(bound_of(result)), reason=getattr(result, "reason", ""))


METHODS: dict[str, PlacementMethod] = {
    "auto": PlacementMethod(solve=lambda problem, seconds: portfolio.solve(problem, time_limit=seconds)),
    "search": PlacementMethod(solve=lambda problem, seconds: search.solve(problem, time_limit=seconds)),
    "cp-sat": PlacementMethod(solve=lambda problem, seconds: cp_sat.solve(problem, time_limit=seconds)),
    "ilp": PlacementMethod(solve=_ilp),
    "colour": PlacementMethod(solve=lambda problem, seconds: colour.solve(problem, time_limit=seconds), note=_slots),
    "greedy": PlacementMethod(solve=lambda problem, seconds: greedy.solve(problem, time_limit=seconds)),
    "improve": PlacementMethod(solve=lambda problem, seconds: improve.solve(problem, time_limit=seconds)),
}
"""Name → method; in the order of reports."""


def place(problem: Problem, *, method: str = "auto", time_limit: float) -> tuple[Result, tuple[MethodOutcome, ...]]:
    """Place buffers by one method, or by each.

    Returns:
        The lowest placement with the highest bound that any of them proved, and a row for each that ran.

    Raises:
        MemplanError: A placement is wrong, by a check that shares no code with the methods.
        UsageError: The one method cannot take the problem, or what it needs is not installed.
    """
    rows = tuple(_row(name, problem, time_limit) for name in (METHODS if method == ALL else (method,)))
    if method != ALL and rows[0].refusal:
        raise UsageError(f"--method {method}: {rows[0].refusal}", hint="--method auto takes every problem")
    return _together(problem, [row.result for row in rows if row.result is not None]), rows


def _row(name: str, problem: Problem, time_limit: float) -> MethodOutcome:
    began = time.perf_counter()
    try:
        result, refusal = _checked(METHODS[name], problem, time_limit), ""
    except UsageError as error:
        result, refusal = None, error.what
    seconds = time.perf_counter() - began
    note = METHODS[name].note(problem) if result is not None else ""
    return MethodOutcome(name=name, result=result, refusal=refusal, note=note, seconds=seconds)


def _checked(method: PlacementMethod, problem: Problem, time_limit: float) -> Result:
    if reason := contradiction(problem):
        return InfeasiblePlacement(reason=reason, bound=lower_bound(problem).bytes)
    result = method.solve(problem, time_limit)
    placement = best_of(result)
    if placement is not None and (wrong := problems_of(replace(problem, capacity=None), placement)):
        raise MemplanError(f"a placement is wrong: {wrong[0]}")
    return result


def _together(problem: Problem, results: Sequence[Result]) -> Result:
    """The lowest placement beside the highest bound; what one method excluded, no other can find."""
    if len(results) == 1:
        return results[0]
    placements = [(found.height, index) for index, each in enumerate(results) if (found := best_of(each)) is not None]
    if not placements:
        return results[0]
    lowest, bound = results[min(placements)[1]], max(map(_bound, results), key=lambda found: found.bytes)
    return ended(problem, best_of(lowest), bound, method=getattr(lowest, "method", ""))
