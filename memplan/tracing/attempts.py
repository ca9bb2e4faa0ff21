"""Runs a program again where it failed on an answer that was only assumed: with that answer the other way."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from memplan.errors import EstimateError, MemplanError
from memplan.job.usercode import forgotten_modules
from memplan.tracing.decisions import Decisions
from memplan.tracing.heard import Place
from memplan.tracing.records import Way

T = TypeVar("T")

MOST_TRIES = 8
"""Runs of a program that fails; a guess that was wrong is mostly the last one before the failure. Chosen: each is
a whole run."""


def attempt(run: Callable[[Decisions], T], way: Way, given: Mapping[str, int] | None = None) -> T:
    """Run a program, and after a failure again with another of the answers that it was given, the last ones first.

    Args:
        run: The program, with what is taken for granted in it.
        way: How what nobody knows turns out.
        given: Integers that the user knows, by file and line.

    Returns:
        What the first run returns that does not fail.

    Raises:
        EstimateError: As the first run does, where no other answer helps.
    """
    forced: dict[Place, bool] = {}
    first: EstimateError | None = None
    tried: set[Place] = set()
    furthest = 0
    for _ in range(MOST_TRIES):
        decisions = Decisions(way, forced, given=given)
        try:
            with forgotten_modules():
                return run(decisions)
        except EstimateError as error:
            if forced and decisions.asked <= furthest:
                # The program came no further by the last change: it is taken back.
                forced.popitem()
            furthest = max(furthest, decisions.asked)
            first = first or error
            last = _last(decisions.made, tried) if _is_of_user(error) else None
            if last is None:
                raise first from first.__cause__
            tried.add(last)
            forced[last] = not decisions.made[last]
    raise first or AssertionError from None


def _is_of_user(error: EstimateError) -> bool:
    """Did the program itself raise, and not memplan for it?"""
    return error.__cause__ is not None and not isinstance(error.__cause__, MemplanError)


def _last(made: dict[Place, bool], tried: set[Place]) -> Place | None:
    return next((place for place in reversed(made) if place not in tried), None)
