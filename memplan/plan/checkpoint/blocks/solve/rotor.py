"""Rotor: the optimal recursion over a chain, with several ways to run each block.

Herrmann, Beaumont et al., "Optimal checkpointing for heterogeneous chains" (2019), with menus as in Rockmate. Blocks
``s..t`` are run either by keeping what block ``s`` needs and going on with ``s + 1``, or as a segment ``[s, c)`` that
keeps its input only, then ``c..t``, then the segment again from its input, by the same recursion::

    cost(s, t, m) = min( option of s + cost(s + 1, t, m - kept - held),
                         min over c of  forward(s..c) + cost(c, t, m) + cost(s, c - 1, m) )

Memory comes in slots: what is kept is rounded up, so that a plan never takes more than its slots, and the unit is
chosen to round little. The recursion knows every budget at once; its answer is judged on exact bytes. Segments nest at
any depth. What rounding may have taken, given back, makes a bound.
"""

import time

from memplan.errors import UsageError
from memplan.plan.checkpoint.blocks.problem.copies import offloads
from memplan.plan.checkpoint.blocks.problem.records import BlockProblem, ChoiceResult, ChoiceTimedOut, FeasibleChoice
from memplan.plan.checkpoint.blocks.problem.seconds import extra_seconds
from memplan.plan.checkpoint.blocks.solve import greedy
from memplan.plan.checkpoint.blocks.solve.nested import NestedSolver
from memplan.plan.checkpoint.blocks.solve.nested_least import least_of
from memplan.plan.checkpoint.blocks.solve.symmetry import is_nested
from memplan.units import Bytes


def solve(problem: BlockProblem, budget: Bytes, *, time_limit: float) -> ChoiceResult:
    """Find the cheapest nested choice.

    Options that offload are left aside.

    Returns:
        Feasible, with a bound unless blocks may be offloaded; Infeasible with the least budget, or TimedOut.

    Raises:
        UsageError: The blocks are no chain.
    """
    if not problem.chain or not is_nested(problem):
        raise UsageError(
            "rotor needs a chain of blocks", where="--method rotor", hint="use --method ilp, which does not"
        )
    ends = time.monotonic() + time_limit
    try:
        nested = NestedSolver(problem, ends)
    except TimeoutError:
        return ChoiceTimedOut(best=None)
    # Where nesting gains little, rounding may cost more than it: the flat descent knows exact bytes.
    flat = greedy.solve(problem, budget, time_limit=ends - time.monotonic())
    fitting = [choice for choice in (nested.within(problem, budget),) if choice is not None]
    fitting += [flat.choice] if isinstance(flat, FeasibleChoice) else []
    if not fitting:
        least = least_of(problem)
        if least.least_bytes > budget:
            return least
        fitting = [least.choice]
    seconds, choice = min(((extra_seconds(problem, each), each) for each in fitting), key=lambda each: each[0])
    bound = None if offloads(problem) else min(seconds, nested.bound(problem, budget))
    return FeasibleChoice(choice=choice, seconds=seconds, bound_seconds=bound)
