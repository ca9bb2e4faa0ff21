"""Programs of decisions: rows count no less than a schedule takes, and implied rows cut nothing off."""

from functools import cache
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings, strategies

from memplan.plan.checkpoint.ops.capture.problem import JointProblem
from memplan.plan.checkpoint.ops.solve.best_schedules import BestSchedules
from memplan.plan.checkpoint.ops.solve.decisions import DecisionProgram
from memplan.plan.checkpoint.ops.solve.lazy import improve
from memplan.plan.checkpoint.ops.solve.memory_rows import MemoryRows
from memplan.plan.checkpoint.schedule.figures import figures_of, memory_curve, unplanned
from memplan.plan.checkpoint.schedule.highs import BinaryProgram, solve_binary
from memplan.plan.checkpoint.schedule.records import Schedule
from tests.plan.checkpoint.ops.cases import llama, mlp, stated


@cache
def _problem(name: str) -> JointProblem:
    return stated(*{"mlp": mlp, "llama": lambda: llama(2, 0.0)}[name]())[1]


def _solution(program: BinaryProgram, seconds: float = 5.0) -> dict[int, float] | None:
    solution = solve_binary(program, time_limit=seconds, threads=1)
    return None if solution.chosen is None else {index: float(value) for index, value in enumerate(solution.chosen)}


@pytest.mark.parametrize("name", ["mlp", "llama"])
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=strategies.integers(0, 2**32), alike=strategies.booleans())
def test_a_row_counts_at_least_what_is_alive(name: str, seed: int, alike: bool):
    problem, random = _problem(name), Random(seed)
    program = DecisionProgram(problem.graph, problem.boundary, alike=alike)
    # Any solution will do, the stranger the better.
    program.program.costs[:] = [random.uniform(-1, 1) for _ in program.program.costs]
    values = _solution(program.program, 1.0)
    assert values is not None
    nodes = program.schedule(program.stages_of(values)).nodes
    rows = MemoryRows(program, 0)
    stage = 0
    for node, alive in zip(nodes, memory_curve(problem.graph, nodes), strict=True):
        rows.add([(stage, node)])
        assert rows.counted((stage, node), values) >= alive
        stage += node == stage
    assert stage == len(problem.graph.names)


def _least(problem: JointProblem, ratio: float) -> float:
    """The least cost with a row for every op, by a solver that ends."""
    graph = problem.graph
    peak = figures_of(graph, unplanned(graph)).peak_bytes
    budget = graph.fixed_bytes + int(ratio * (peak - graph.fixed_bytes))
    program = DecisionProgram(graph, problem.boundary, alike=False)
    MemoryRows(program, budget).add([(stage, stage) for stage in range(len(graph.names))])
    solution = solve_binary(program.program, time_limit=20, threads=1)
    assert solution.proven
    return solution.bound


@pytest.mark.parametrize("ratio", [0.75, 0.6])
def test_rows_that_whole_numbers_imply_cut_off_no_solution(monkeypatch: pytest.MonkeyPatch, ratio: float):
    problem = _problem("mlp")
    least = _least(problem, ratio)
    monkeypatch.setattr(DecisionProgram, "_derive", lambda _: None)
    assert _least(problem, ratio) == pytest.approx(least, rel=1e-6)


def test_pieces_improve_a_solution_that_recomputes_for_nothing():
    problem = _problem("llama")
    graph = problem.graph
    peak = figures_of(graph, unplanned(graph)).peak_bytes
    rows = MemoryRows(DecisionProgram(graph, problem.boundary, alike=False), peak)
    costs = list(rows.decisions.program.costs)
    # As much as possible is computed again.
    rows.decisions.program.costs[:] = [-cost for cost in costs]
    values = _solution(rows.decisions.program, 2.0)
    rows.decisions.program.costs[:] = costs
    assert values is not None
    start = figures_of(graph, _schedule(rows, values))
    met = BestSchedules(graph, problem.boundary, max(peak, start.peak_bytes))
    improve(rows, values, met, time_limit=5, threads=1)
    assert met.best is not None
    assert met.cost < start.cost


def _schedule(rows: MemoryRows, values: dict[int, float]) -> Schedule:
    return rows.decisions.schedule(rows.decisions.stages_of(values))


def test_only_free_variables_move():
    program = BinaryProgram(costs=[1.0, 1.0, 1.0])
    program.row([0, 1, 2], [1.0, 1.0, 1.0], 1.0, 3.0)
    solution = solve_binary(program, time_limit=5, threads=1, start={0: 1.0, 1: 1.0, 2: 1.0}, free={1})
    assert solution.chosen is not None
    assert solution.chosen.tolist() == [True, False, True]
