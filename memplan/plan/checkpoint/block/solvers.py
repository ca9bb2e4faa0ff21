"""Solvers by name."""

from importlib import import_module

from memplan.plan.checkpoint.answer_records import Method
from memplan.plan.checkpoint.block.best import Best
from memplan.plan.checkpoint.block.pareto import Solve


def solver(method: Method) -> Solve:
    """The solver of a name.

    ``ilp``, the default, also weighs what its program does not know: segments, where the blocks are a chain.
    """
    if method == "ilp":
        return Best()
    solve: Solve = import_module(f"memplan.plan.checkpoint.block.{method}").solve
    return solve
