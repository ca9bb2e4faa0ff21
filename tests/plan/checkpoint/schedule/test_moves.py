from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memplan.plan.checkpoint.schedule.annealing.anneal import Cooling, anneal, forget
from memplan.plan.checkpoint.schedule.annealing.recompute import recompute
from memplan.plan.checkpoint.schedule.annealing.sequence import AcceptanceRule, LiveSequence
from memplan.plan.checkpoint.schedule.annealing.shift import shift
from memplan.plan.checkpoint.schedule.check import violations
from memplan.plan.checkpoint.schedule.figures import figures_of, memory_curve, unplanned
from memplan.plan.checkpoint.schedule.ordered import ordered, useful
from memplan.plan.checkpoint.schedule.records import RematGraph
from tests.plan.checkpoint.schedule.graphs import graphs, schedules


def climate(seed: int, temperature: float) -> AcceptanceRule:
    noise = np.random.default_rng(seed).gumbel(size=5_000)
    return AcceptanceRule(temperature=temperature, weight=1.0, random=Random(seed), noise=noise)


@given(st.data())
def test_every_move_keeps_the_books(data: st.DataObject):
    """After any moves the schedule is valid, and its memory and cost are what ``figures.py`` says from scratch."""
    graph = data.draw(graphs(most=10))
    start = data.draw(schedules(graph))
    problem = ordered(graph, range(len(graph.names)))
    live = LiveSequence(problem, problem.numbers(start), data.draw(st.integers(0, 40)))
    weather = climate(data.draw(st.integers(0, 1000)), data.draw(st.sampled_from([0.1, 3.0, 1000.0])))
    for _ in range(data.draw(st.integers(1, 25))):
        place = weather.random.randrange(len(live.row))
        match data.draw(st.sampled_from("srf")):
            case "s":
                shift(live, int(live.row[place]), weather)
            case "r":
                recompute(live, place, weather)
            case "f":
                forget(live, int(live.row[place]), weather)
        schedule = problem.schedule(live.numbers())
        assert not violations(graph, schedule)
        curve = np.array(memory_curve(graph, schedule.nodes)) - graph.fixed_bytes
        assert list(live.memory[: len(curve)]) == list(curve)
        assert live.extra == pytest.approx(figures_of(graph, schedule).cost - sum(graph.costs))


@given(st.data())
def test_only_improvements_are_made_in_the_cold(data: st.DataObject):
    graph = data.draw(graphs(most=10))
    problem = ordered(graph, range(len(graph.names)))
    budget = data.draw(st.integers(0, 40))
    live = LiveSequence(problem, problem.numbers(data.draw(schedules(graph))), budget)
    weather = climate(data.draw(st.integers(0, 1000)), 1e-9)
    energy = live.extra + np.maximum(live.memory - budget, 0).sum()
    for move in range(30):
        place = weather.random.randrange(len(live.row))
        if move % 3 == 0:
            shift(live, int(live.row[place]), weather)
        elif move % 3 == 1:
            recompute(live, place, weather)
        else:
            forget(live, int(live.row[place]), weather)
        after = live.extra + np.maximum(live.memory - budget, 0).sum()
        assert after <= energy + 1e-6
        energy = after


@given(st.data())
def test_what_nothing_reads_can_go(data: st.DataObject):
    graph = data.draw(graphs(most=8))
    schedule = data.draw(schedules(graph))
    problem = ordered(graph, range(len(graph.names)))

    lean = problem.schedule(useful(problem, problem.numbers(schedule)))

    before, after = figures_of(graph, schedule), figures_of(graph, lean)
    assert not violations(graph, lean)
    assert after.cost <= before.cost
    assert after.peak_bytes <= before.peak_bytes


@given(graphs(most=8), st.integers(5, 40))
@settings(max_examples=20)
def test_the_same_seed_gives_the_same_schedule(graph: RematGraph, budget: int):
    problem = ordered(graph, range(len(graph.names)))
    start = problem.numbers(unplanned(graph))
    cooling = Cooling(moves=300, temperatures=(1.0, 0.01), weights=(10.0, 1000.0))

    first, second = (anneal(problem, start, budget, cooling, seed=3, elapsed=lambda: 0.0) for _ in range(2))

    assert first == second
    if first.numbers is not None:
        assert not violations(graph, problem.schedule(first.numbers), budget + graph.fixed_bytes)


def test_annealing_computes_a_again_in_the_loop():
    graph = RematGraph(
        names=tuple("abcd"), sizes=(5, 2, 3, 1), costs=(1.0, 10.0, 10.0, 10.0), predecessors=((), (0,), (1,), (0, 2))
    )
    cooling = Cooling(moves=300, temperatures=(1.0, 0.01), weights=(10.0, 1000.0))

    annealed = anneal(ordered(graph, range(4)), range(4), 9, cooling, seed=0, elapsed=lambda: 0.0)

    assert annealed.numbers == [0, 1, 2, 0, 3]
    assert annealed.extra_cost == 1.0


def test_no_time_means_no_moves():
    graph = RematGraph(names=("a",), sizes=(1,), costs=(1.0,), predecessors=((),))
    cooling = Cooling(moves=10**9, temperatures=(1.0, 0.01), weights=(10.0, 1000.0))

    assert anneal(ordered(graph, [0]), [0], 9, cooling, seed=0, elapsed=lambda: 1.0).numbers is None
