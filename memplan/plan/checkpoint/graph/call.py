"""The library call for a graph from a file: a budget to a schedule."""

import time
from pathlib import Path

from memplan.plan.checkpoint.graph.instances import read_instance
from memplan.plan.checkpoint.schedule.answer import GraphAnswer, answer_of, budget_of
from memplan.plan.checkpoint.schedule.figures import figures_of, unplanned
from memplan.plan.checkpoint.schedule.solve import solve_schedule


def plan_graph(path: Path, *, budget: int | None, ratio: float | None, time_limit: float) -> GraphAnswer:
    """Solve a graph from a file.

    Args:
        path: networkx node-link JSON, in Checkmate's or Moccasin's dialect.
        budget: Peak in bytes at most; or
        ratio: the same as a share of the peak of the graph's own order, rounded down.
        time_limit: Seconds for the search.

    Raises:
        UsageError: The file is no such graph, or not exactly one of budget and ratio is given.
    """
    graph = read_instance(path)
    before = figures_of(graph, unplanned(graph))
    limit = budget_of(before, budget, ratio)
    started = time.perf_counter()
    result = solve_schedule(graph, limit, time_limit=time_limit)
    seconds = time.perf_counter() - started
    return answer_of(graph, before, result, target=str(path), budget=limit, seconds=seconds)
