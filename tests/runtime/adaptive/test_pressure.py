"""Caches are cleared under pressure, seldom, and while that gives something back."""

import gc
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from memplan.errors import UsageError
from memplan.runtime.adaptive.pressure import Pressure, Relief, ReliefHistory, ReliefPolicy, decide, learned
from memplan.runtime.adaptive.relief import PressureRelief, pressure_of, relieve

policies = st.builds(
    ReliefPolicy, use=st.floats(0, 1), cached=st.floats(0, 1), steps=st.integers(1, 100), worth=st.floats(0, 1)
)
pressures = st.builds(
    lambda total, used, reserved, cached: Pressure(
        total=total, used=int(used * total), reserved=int(reserved * total), cached=int(cached * reserved * total)
    ),
    st.integers(1, 10**11), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1),
)  # fmt: skip
ORDER = list(Relief)


@given(policy=policies, reading=pressures, more=pressures)
def test_more_pressure_never_asks_for_less(policy: ReliefPolicy, reading: Pressure, more: Pressure) -> None:
    history = ReliefHistory()
    fuller = replace(reading, used=max(reading.used, min(more.used, reading.total)))
    idler = replace(fuller, cached=max(fuller.cached, min(more.cached, fuller.reserved)))
    reliefs = [ORDER.index(decide(policy, history, each, 0)) for each in (reading, fuller, idler)]
    assert reliefs == sorted(reliefs)


@given(policy=policies, readings=st.lists(pressures, min_size=1, max_size=20), gives=st.floats(0, 1))
def test_answers_keep_their_distance(policy: ReliefPolicy, readings: list[Pressure], gives: float) -> None:
    history, answered = ReliefHistory(), []
    for step in range(1000):
        reading = readings[step % len(readings)]
        if decide(policy, history, reading, step) is not Relief.NOTHING:
            answered.append(step)
            history = learned(policy, history, given_back=int(gives * reading.total), total=reading.total, step=step)
    assert all(later - sooner >= policy.steps for sooner, later in pairwise(answered))
    assert history.answers == len(answered)


def test_what_gives_nothing_is_given_up() -> None:
    policy, history, answered = ReliefPolicy(steps=10), ReliefHistory(), []
    full = Pressure(used=99, total=100, cached=0, reserved=90)
    for step in range(10_000):
        if decide(policy, history, full, step) is Relief.COLLECT:
            answered.append(step)
            history = learned(policy, history, given_back=0, total=100, step=step)
    assert answered == [0, 20, 60, 140, 300, 620, 1260, 2540, 5100]
    useful = learned(policy, history, given_back=5, total=100, step=10_000)
    assert (useful.wait, useful.given_back) == (10, 5)


def test_a_full_cache_is_no_pressure_where_there_is_room() -> None:
    idle = Pressure(used=80, total=100, cached=70, reserved=75)
    assert decide(ReliefPolicy(), ReliefHistory(), idle, 0) is Relief.NOTHING
    assert decide(ReliefPolicy(), ReliefHistory(), replace(idle, used=95), 0) is Relief.COLLECT_AND_EMPTY
    assert decide(ReliefPolicy(), ReliefHistory(), replace(idle, used=95, cached=3), 0) is Relief.COLLECT


def test_what_makes_no_sense_is_named() -> None:
    with pytest.raises(UsageError) as caught:
        ReliefPolicy(use=1.5, cached=-0.1, worth=2, steps=0)
    assert all(word in str(caught.value) for word in ("use", "cached", "worth", "steps"))


class Cycle:
    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.itself = tensor, self


def test_cycles_are_collected_and_counted() -> None:
    gc.collect()
    before = pressure_of(torch.device("cpu"))
    assert 0 < before.cached <= before.used <= before.total
    gc.disable()
    try:
        Cycle(torch.ones(64 << 18))
        done = relieve(Relief.COLLECT, torch.device("cpu"))
    finally:
        gc.enable()
    assert 0.9 * (64 << 20) < done.given_back < 1.1 * (64 << 20)
    assert done.seconds > 0


def test_readings_are_asked_for_only_when_an_answer_may_come() -> None:
    asked = []

    def reading() -> Pressure:
        asked.append(1)
        return Pressure(used=99, total=10**12, cached=0, reserved=0) if len(asked) < 3 else full

    full = Pressure(used=10**12, total=10**12, cached=0, reserved=0)
    watch = PressureRelief(ReliefPolicy(steps=7), read_pressure=reading)
    done = [watch.after_step() for _ in range(30)]
    answered = [step for step, each in enumerate(done) if each is not None]
    assert answered == [2, 16]  # It gave nothing, so that 14 steps lie between.
    assert len(asked) == 4
    assert watch.history.answers == 2


TRIMMED = """
import torch
from memplan.runtime.adaptive.pressure import Relief
from memplan.runtime.adaptive.relief import relieve
kept = []
small = [torch.ones(8192) for _ in range(4096)]  # 32 KiB each: from the heap, which shrinks at its end alone.
kept.append(torch.ones(8192))
del small
print(relieve(Relief.COLLECT_AND_EMPTY, torch.device("cpu")).given_back)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="malloc_trim is glibc's")
def test_the_heap_is_given_back_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", TRIMMED], capture_output=True, text=True, timeout=60, check=True)
    assert int(done.stdout) > 64 << 20
