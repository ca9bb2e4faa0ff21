"""How likely drawn lengths run out of memory: against arithmetic, and against runs drawn here."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from memplan.replay.allocator import make_caching
from memplan.replay.conf import parse_conf
from memplan.simulate import tail as tails
from memplan.simulate.family import Families
from memplan.simulate.lengths import Listed, Uniform, draw, parse_distribution, possible, share_from
from memplan.simulate.play import StepPlayer
from memplan.simulate.tail import Tail, TailPlan, share_interval
from memplan.units import MIB
from tests.simulate.workloads import workload

LINEAR = ([20 * MIB], [("alloc", 0, 20480, 0), ("alloc", 1, 20480, 1), ("free", 1, 0), ("free", 0, 0)])
"""Two buffers of 20 KiB a token: a length L takes 20 MiB and 40 L KiB, in segments of 2 MiB's multiples."""


@pytest.fixture(autouse=True)
def _few_runs(monkeypatch):
    monkeypatch.setattr(tails, "MOST_RUNS", 200)


def tail_of(distribution, *, steps, program=LINEAR, conf="", seed=0):
    return Tail(
        workload=workload(program, ()),
        plan=TailPlan(distribution=distribution, steps=steps, seed=seed),
        policy=parse_conf(conf),
        device_bytes=None,
    )


@pytest.mark.parametrize("text", ["uniform:3-9", "normal:20,6", "normal:20,6,min=18,max=25", "lognormal:9,0.5,max=30"])
def test_shares_are_those_of_drawn_lengths(text):
    distribution = parse_distribution(text)
    source, count = random.Random(0), 20_000
    drawn = Counter(draw(distribution, source) for _ in range(count))
    lengths = possible(distribution)
    assert share_from(distribution, lengths[0]) == 1
    assert share_from(distribution, lengths[-1] + 1) == 0
    for length in lengths:
        share = sum(times for other, times in drawn.items() if other >= length) / count
        assert share_from(distribution, length) == pytest.approx(share, abs=0.015)


def test_lines_of_a_file_are_as_likely():
    distribution = Listed(lengths=(7, 100, 7, 9))
    assert list(possible(distribution)) == [7, 9, 100]
    assert [share_from(distribution, length) for length in (7, 8, 100, 101)] == [1, 0.5, 0.25, 0]


@pytest.mark.parametrize(("count", "total", "low", "high"), [
    (0, 10, 0.0, 0.3085), (1, 10, 0.0025, 0.4450), (5, 10, 0.1871, 0.8129), (10, 10, 0.6915, 1.0),
])  # fmt: skip
def test_the_interval_is_that_of_tables(count, total, low, high):
    """Exact 95 % limits of a binomial share, as printed in tables of Clopper and Pearson's."""
    assert share_interval(count, total) == pytest.approx((low, high), abs=1e-4)


@pytest.mark.parametrize("steps", [1, 10, 1000])
def test_where_only_the_longest_fails_the_chance_is_arithmetic(steps):
    tail = tail_of(Listed(lengths=(100,) * 99 + (1500,)), steps=steps)
    limit = tail_of(Listed(lengths=(100,)), steps=9).most_reserved() + 8 * MIB
    chance = tail.chance(limit)
    assert chance.chance == pytest.approx(1 - 0.99**steps, abs=1e-9)
    assert chance.low <= chance.chance <= chance.high


def test_where_all_fit_nothing_runs_out_and_where_none_does_everything():
    tail = tail_of(Uniform(low=97, high=1543), steps=20)
    assert tail.chance(tail.most_reserved()).chance == 0
    nothing = tail.chance(20 * MIB)
    assert (nothing.chance, nothing.low, nothing.high, nothing.runs) == (1, 1, 1, 0)


def test_a_first_step_that_needs_more_than_later_ones_is_not_taken_for_them():
    """Work space of the first step alone: a run whose first step is short holds long ones."""
    first = tail_of(Uniform(low=97, high=1543), steps=20, program=LINEAR)
    family, *_ = first.workload.families.members
    [alloc, *_] = (call for call in family.warm_up[0] if not call.is_free)
    more = [alloc._replace(key=10**6 + index) for index in range(4)]
    heavy = (*more, *(call._replace(action="free") for call in more), *family.warm_up[0])
    work = replace(first.workload, families=Families(members=(replace(family, warm_up=(heavy,)),)))
    tail, limit = replace(first, workload=work), first.most_reserved()
    chance = tail.chance(limit)
    assert chance.low - 0.06 <= drawn_share(tail, limit, 200) <= chance.high + 0.06


FRAGMENTED = (
    [30 * MIB],
    [("alloc", 0, 20480, 0), ("alloc", 1, 4096, 3 * MIB), ("free", 0, 0), ("alloc", 2, 20480, MIB), ("free", 2, 0),
     ("free", 1, 1)],
)  # fmt: skip
"""What a step leaves for the next lies in its way."""


def drawn_share(tail, limit, runs):
    """How many of so many runs with seeds of their own run out, every step of them played."""
    failed = 0
    for run in range(runs):
        source = random.Random(f"apart {run}")
        lengths = tuple(draw(tail.plan.distribution, source) for _ in range(tail.plan.steps))
        player = StepPlayer(make_caching(tail.policy, limit_bytes=limit))
        player.run(replace(tail.workload, lengths=lengths))
        failed += player.failure is not None
    return failed / runs


def test_the_chance_is_that_of_runs_drawn_apart():
    tail = tail_of(Uniform(low=1000, high=1543), steps=12, program=FRAGMENTED)
    limit = 110 * MIB
    chance, truth = tail.chance(limit), drawn_share(tail, limit, 200)
    assert 0.02 < truth < 0.98
    assert chance.low - 0.06 <= truth <= chance.high + 0.06


def test_the_same_seed_gives_the_same_chance():
    tail = tail_of(Uniform(low=1000, high=1543), steps=6, program=FRAGMENTED)
    limit = 110 * MIB
    assert tail.chance(limit) == tail.chance(limit)
