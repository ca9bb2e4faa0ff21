"""Which of the integers that a program reads, and that nobody knows, decide how much memory it takes.

Each is taken to be another one, and the program runs again. Where it then allocates the same, the integer only selects
or is logged. Where it does not, the integer is a length, a size or a number of rounds: an end of the interval holds the
largest if that is known, and else the user is asked.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from memplan.errors import EstimateError
from memplan.job.usercode import forgotten_modules
from memplan.tracing.account import how_large
from memplan.tracing.decisions import Decisions
from memplan.tracing.heard import Place
from memplan.tracing.integers import IntegerRead
from memplan.tracing.records import Trace


def settled(trace: Trace, decisions: Decisions, run: Callable[[Decisions], Trace], given: Mapping[str, int]) -> Trace:
    """Find out what the integers decide that a program has read.

    Args:
        trace: Its trace.
        decisions: What was taken for granted there.
        run: Runs it again.
        given: Integers that the user knows, by file and line.

    Returns:
        The trace, with no doubt of integers that decide nothing.

    Raises:
        EstimateError: An integer decides that nothing bounds.
    """

    def again(places: Collection[Place] = (), *, largest: bool = True) -> list[tuple[str, int]]:
        """What the program allocates where these integers are others."""
        forced = {**decisions.forced, **dict.fromkeys(places, largest)}
        with forgotten_modules():
            return sizes(run(Decisions(decisions.way, forced, given=given, moved=places)))

    def decide(places: Collection[Place], alike: Collection[list[tuple[str, int]]]) -> bool:
        """Does the program allocate something else where these integers are others?"""
        for largest in (True, False):
            try:
                return again(places, largest=largest) not in alike
            except EstimateError:
                # The program cannot do with this integer: a smaller one may be in order.
                continue
        return len(places) > 1

    integers = decisions.integers
    alike = [sizes(trace)]
    moved = decide([*integers], alike)
    if moved:
        # What is made once in a process (a library's caches) is missing when a program runs again, whatever it reads.
        alike.append(again())
        moved = alike[0] == alike[1] or decide([*integers], alike)
    deciding = [place for place in integers if len(integers) == 1 or decide([place], alike)] if moved else []
    unbounded = [integers[place] for place in deciding if not integers[place].is_bounded]
    if unbounded:
        raise _asked(unbounded)
    harmless = {how_large(integers[place].shown) for place in integers if place not in deciding}
    return replace(
        trace,
        not_modelled=tuple(sentence for sentence in trace.not_modelled if sentence not in harmless),
        unsure=trace.unsure if deciding else tuple(way for way in trace.unsure if way in decisions.account.ways),
    )


def sizes(trace: Trace) -> list[tuple[str, int]]:
    """Where and how large each allocation of a trace is, in order."""
    return [(storage.place, storage.nbytes) for storage in trace.storages]


def _asked(unbounded: Collection[IntegerRead]) -> EstimateError:
    places = dict.fromkeys(integer.shown for integer in unbounded)
    return EstimateError(
        "an integer that the program reads from a tensor decides how much memory it takes, and nobody knows the tensor",
        where=", ".join(places),
        hint="say what it is: " + " ".join(f"--assume item@{shown}=N" for shown in places),
    )
