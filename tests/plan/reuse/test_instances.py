"""Published graphs and challenges, and a training run of 60,000 buffers: how low, and that each placement is right."""

import os
from pathlib import Path

import pytest

from memplan.plan.reuse import greedy, portfolio
from memplan.plan.reuse.bound import lower_bound
from memplan.plan.reuse.check import problems_of
from memplan.plan.reuse.compiled import HAS_NUMBA
from memplan.plan.reuse.csv_file import read_problem
from memplan.plan.reuse.records import OptimalPlacement
from memplan.plan.reuse.result import best_of
from tests.plan.reuse.training_trace import training_run

DATA = Path(os.environ.get("MEMPLAN_DATA", Path(__file__).parents[4] / "shared" / "data")) / "dsa"


def instance(name, **options):
    path = DATA / f"{name}.csv"
    if not path.exists():
        pytest.skip("no instances at hand")
    return read_problem(path, **options)


def most_alive(problem):
    changes = sorted([(b.start, b.size) for b in problem.buffers] + [(b.end, -b.size) for b in problem.buffers],
                     key=lambda change: (change[0], change[1]))  # fmt: skip
    most = alive = 0
    for _, change in changes:
        alive += change
        most = max(most, alive)
    return most


# Best of the simple orderings that was measured for these instances elsewhere, as height over load.
@pytest.mark.parametrize(
    ("name", "ratio"), [("idealloc/somas_tensors_resnet50", 1.0064), ("idealloc/iopddl_G_1", 1.0028)]
)
def test_orderings_come_close_to_the_bound(name, ratio):
    problem = instance(name)
    found = best_of(greedy.solve(problem, time_limit=60))
    assert problems_of(problem, found) == ()
    assert found.height <= ratio * most_alive(problem)


@pytest.mark.parametrize(
    "name", ["somas_tensors_resnet50", "iopddl_G_1", pytest.param("somas_tensors_pangu_2.6B", marks=pytest.mark.slow)]
)
def test_real_graphs_reach_the_bound(name):
    problem = instance(f"idealloc/{name}")
    result = portfolio.solve(problem, time_limit=60)
    assert isinstance(result, OptimalPlacement)
    assert result.placement.height == most_alive(problem)
    assert problems_of(problem, result.placement) == ()


@pytest.mark.skipif(not HAS_NUMBA, reason="takes minutes where loops are not compiled")
@pytest.mark.parametrize("name", "ABCDEFGHIJK")
def test_the_challenges_fit_their_capacity(name):
    problem = instance(f"minimalloc/{name}.1048576", capacity=1_048_576)
    found = best_of(portfolio.solve(problem, time_limit=60))
    assert problems_of(problem, found) == ()
    assert found.height <= 1_048_576


@pytest.mark.slow
def test_sixty_thousand_buffers_of_a_training_run():
    problem = training_run(layers=48, micro_batches=80)
    assert len(problem.buffers) > 60_000
    result = portfolio.solve(problem, time_limit=60)
    assert problems_of(problem, result.placement) == ()
    assert result.placement.height <= 1.01 * most_alive(problem)
    assert lower_bound(problem).bytes == most_alive(problem)
