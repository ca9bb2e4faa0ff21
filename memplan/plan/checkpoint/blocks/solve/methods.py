"""Solvers by name."""

from importlib import import_module

from memplan.plan.checkpoint.blocks.answer.records import Method
from memplan.plan.checkpoint.blocks.solve.best import CombinedSolver
from memplan.plan.checkpoint.blocks.solve.curve import Solve


def solver(method: Method) -> Solve:
    """The solver of a name.

    ``ilp``, the default, also weighs what its program does not know: segments, where the blocks are a chain.
    """
    if method == "ilp":
        return CombinedSolver()
    solve: Solve = import_module(f"memplan.plan.checkpoint.blocks.solve.{method}").solve
    return solve
