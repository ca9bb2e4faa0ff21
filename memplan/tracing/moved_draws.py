"""Do the random numbers that steps draw on the host decide how much memory they take?

They are drawn otherwise, and the program runs again. Where it then allocates the same, they were data.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from memplan.errors import EstimateError
from memplan.job.usercode import forgotten_modules
from memplan.tracing.decisions import Decisions
from memplan.tracing.host_draws import Drawn
from memplan.tracing.moved_integers import sizes
from memplan.tracing.records import Trace

Run = Callable[[Decisions], Trace]
"""Runs the program, with what is taken for granted in it."""

DECIDING = (
    "random numbers that steps draw by random or numpy.random, and that have no seed, decide what they do: each trace "
    "draws the same ones, and the interval holds the least and the greatest of each"
)
ENDS: tuple[Drawn, ...] = ("least", "greatest")


def with_draws(trace: Trace, decisions: Decisions, run: Run, given: Mapping[str, int]) -> Trace:
    """Find out what the numbers decide that the steps of a program drew on the host.

    Args:
        trace: Its trace.
        decisions: What was taken for granted there.
        run: Runs it again.
        given: Integers that the user knows, by file and line.

    Returns:
        The trace; where they decide, it says so and is in doubt.
    """
    if not decisions.host_draws.differ or not any(_decide(trace, decisions, run, given, drawn) for drawn in ENDS):
        return trace
    return replace(
        trace,
        assumptions=(*trace.assumptions, DECIDING),
        unsure=tuple(dict.fromkeys((*trace.unsure, "other", "most"))),
    )


def _decide(trace: Trace, decisions: Decisions, run: Run, given: Mapping[str, int], drawn: Drawn) -> bool:
    """Does the program allocate something else where it draws others?"""
    again = Decisions(decisions.way, decisions.forced, given=given, drawn=drawn)
    # One that fails for them says nothing.
    with suppress(EstimateError), forgotten_modules():
        return sizes(run(again)) != sizes(trace)
    return False
