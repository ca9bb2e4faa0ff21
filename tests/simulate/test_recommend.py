"""Which option is recommended."""

import pytest

from memplan.simulate.recommend import options_in, recommend
from memplan.units import GIB, MIB
from tests.simulate.runs import EXPANDABLE, NATIVE, run_of


def chosen(*runs, costs=None):
    return recommend(runs, costs or {run.name: 100.0 for run in runs})


def test_the_least_reserved_wins_and_its_line_can_be_copied():
    best = chosen(run_of(*NATIVE, 3 * GIB), run_of(*EXPANDABLE, 2 * GIB))
    assert best.command == "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    assert "50.0 % fragmentation" in best.reason
    assert "1.00 GiB less than by default" in best.reason


def test_what_pytorch_cannot_do_is_never_recommended():
    assert chosen(run_of(*NATIVE, 3 * GIB), run_of("compacting", None, GIB)).policy == "native"


def test_within_one_percent_the_one_with_fewer_options_wins():
    best = chosen(run_of(*NATIVE, 2 * GIB + 10 * MIB), run_of(*EXPANDABLE, 2 * GIB))
    assert (best.policy, best.command) == ("native", "unset PYTORCH_CUDA_ALLOC_CONF")


def test_within_one_percent_the_cheaper_wins():
    runs = run_of(*NATIVE, 2 * GIB), run_of(*EXPANDABLE, 2 * GIB)
    assert chosen(*runs, costs={"native": 200.0, "expandable": 100.0}).policy == "expandable"
    assert chosen(*runs, costs={"native": 105.0, "expandable": 100.0}).policy == "native"


def test_one_that_runs_out_of_memory_is_not_recommended():
    best = chosen(run_of(*NATIVE, GIB, failed=7), run_of(*EXPANDABLE, 2 * GIB))
    assert best.policy == "expandable"
    assert "out of memory in step 7" in best.reason
    assert chosen(run_of(*NATIVE, GIB, failed=7)) is None


@pytest.mark.parametrize(
    ("conf", "count"),
    [("", 0), ("expandable_segments:True", 1), ("a:1,b:2", 2), ("roundup_power2_divisions:[256:1,>:4],a:1", 2)],
)
def test_options_are_counted(conf, count):
    assert options_in(conf) == count
