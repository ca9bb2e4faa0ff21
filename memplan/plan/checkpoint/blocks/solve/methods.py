"""Solvers by name."""

from importlib import import_module

from memplan.plan.checkpoint.blocks.problem.records import BlockProblem
from memplan.plan.checkpoint.blocks.request import Method
from memplan.plan.checkpoint.blocks.solve.best import CombinedSolver
from memplan.plan.checkpoint.blocks.solve.curve import Solve

MANY_BLOCKS = 64
"""With more of them the integer program takes longer than a table that finds as good a choice, up to rounding: it is
left to prove how good that is."""


def solver(method: Method) -> Solve:
    """Return the solver of a name.

    ``ilp``, the default, also weighs what its program does not know: segments, where the blocks are a chain.
    """
    if method == "ilp":
        return CombinedSolver()
    solve: Solve = import_module(f"memplan.plan.checkpoint.blocks.solve.{method}").solve
    return solve


def rough_solver(solve: Solve) -> Solve:
    """Return the quicker way of a solver that has one, else the solver."""
    return solve.roughly if isinstance(solve, CombinedSolver) else solve


def sketching_solver(solve: Solve, problem: BlockProblem) -> Solve | None:
    """Return what finds the plans to trace where that is quicker than the solver itself; None where it is not."""
    return rough_solver(solve) if isinstance(solve, CombinedSolver) and len(problem.blocks) > MANY_BLOCKS else None
