from hypothesis import given, settings
from hypothesis import strategies as st

from memplan.plan.checkpoint.schedule.check import violations
from memplan.plan.checkpoint.schedule.figures import figures_of, unplanned
from memplan.plan.checkpoint.schedule.gap_ilp import GapProgram, GapSolution, slack, solve_gaps
from memplan.plan.checkpoint.schedule.highs import BinaryProgram, solve_binary
from memplan.plan.checkpoint.schedule.ordered import OrderedProblem, ordered
from memplan.plan.checkpoint.schedule.records import RematGraph
from tests.plan.checkpoint.schedule.graphs import cheapest_by_stages, graphs

ALL_HOPS = 6


def solve(problem: OrderedProblem, budget: int, hops: int = ALL_HOPS, start: list[int] | None = None) -> GapSolution:
    capacity = [budget] * len(problem.sizes)
    return solve_gaps(problem, capacity, hops=hops, time_limit=10.0, threads=1, start=start)


@given(graphs(plain=True), st.integers(0, 30))
def test_it_finds_what_enumeration_finds(graph: RematGraph, budget: int):
    truth = cheapest_by_stages(graph, budget)
    problem = ordered(graph, range(len(graph.names)))

    solution = solve(problem, budget)

    if truth is None:
        assert solution.numbers is None
        assert solution.extra_bound == float("inf")
        return
    assert solution.proven
    assert abs(sum(graph.costs) + solution.extra_cost - truth) < 1e-6
    assert abs(solution.extra_bound - solution.extra_cost) < 1e-3
    assert not violations(graph, problem.schedule(solution.numbers), budget)


@given(graphs(), st.integers(0, 60))
def test_scratch_outputs_and_pinned_nodes_are_respected(graph: RematGraph, budget: int):
    problem = ordered(graph, range(len(graph.names)))

    solution = solve(problem, budget - graph.fixed_bytes)

    if solution.numbers is not None:
        assert not violations(graph, problem.schedule(solution.numbers), budget)


@given(graphs(plain=True), st.integers(0, 30))
@settings(max_examples=30)
def test_a_start_changes_nothing_but_the_way(graph: RematGraph, budget: int):
    problem = ordered(graph, range(len(graph.names)))
    short = solve(problem, budget, hops=0)
    if short.numbers is None:
        return
    program = GapProgram(problem, [budget] * len(problem.sizes), ALL_HOPS)
    values = program.values_of(short.numbers)

    assert program.numbers_of([value > 0.5 for value in values.values()]) == short.numbers
    assert abs(solve(problem, budget, start=short.numbers).extra_cost - solve(problem, budget).extra_cost) < 1e-6


# 4 reads 1 again, which is too big to be kept while 3 is computed, as is 0, of which it can be computed again.
CHAIN = RematGraph(
    names=tuple("01234"),
    sizes=(2, 6, 6, 6, 1),
    costs=(1.0,) * 5,
    predecessors=((), (0,), (1,), (2,), (1, 3)),
    scratch=(0, 0, 0, 4, 0),
)


def test_a_chain_needs_hops():
    problem = ordered(CHAIN, range(5))

    assert solve(problem, 16, hops=0).numbers is None
    assert solve(problem, 16, hops=1).numbers == [0, 1, 2, 3, 0, 1, 4]


def test_slack_is_what_the_program_counts_in_vain():
    problem = ordered(CHAIN, range(5))
    numbers = [0, 1, 2, 3, 0, 1, 4]

    # In the stage of 4 the program counts 0, 1, 3 and 4; in truth 0 has gone when 4 is computed.
    assert slack(problem, numbers) == [0, 0, 0, 0, 1]
    assert figures_of(CHAIN, problem.schedule(numbers)).peak_bytes == 16
    assert slack(problem, list(unplanned(CHAIN).nodes)) == [0] * 5


def test_the_number_of_threads_may_change_between_runs():
    program = BinaryProgram()
    program.row([program.variable(1.0), program.variable(2.0)], [1.0, 1.0], 1.0, 2.0)

    for threads in (1, 2, 1):
        solution = solve_binary(program, time_limit=10.0, threads=threads)
        assert solution.chosen is not None
        assert (list(solution.chosen), solution.bound) == ([True, False], 1.0)
