"""Solvers by name, and how they are put together."""

import time
from importlib import import_module

from memplan.plan.checkpoint.answer_records import Method
from memplan.plan.checkpoint.block.pareto import Solve
from memplan.plan.checkpoint.block.records import BlockProblem, Infeasible, Result, TimedOut
from memplan.plan.checkpoint.block.symmetry import is_nested
from memplan.units import Bytes


def solver(method: Method) -> Solve:
    """The solver of a name.

    ``ilp`` knows no segments. Where nothing flat fits and the blocks are a chain, ``rotor`` nests them deeper.
    """
    solve: Solve = import_module(f"memplan.plan.checkpoint.block.{method}").solve
    if method != "ilp":
        return solve

    def deeper(problem: BlockProblem, budget: Bytes, *, time_limit: float) -> Result:
        started = time.monotonic()
        flat = solve(problem, budget, time_limit=time_limit)
        if not isinstance(flat, Infeasible) or not problem.chain or not is_nested(problem):
            return flat
        left = max(0.0, time_limit - (time.monotonic() - started))
        nested = solver("rotor")(problem, budget, time_limit=left)
        match nested:
            case TimedOut():
                return flat
            case Infeasible():
                return min(flat, nested, key=lambda result: result.least_bytes)
            case _:
                return nested

    return deeper
