"""The largest batch, found by trying: against capacities that are known."""

import gc
import json
import time
import weakref
from math import ceil, log2
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from memplan.errors import UsageError
from memplan.hardware.catalog import load_profile
from memplan.plan.batch.records import BatchAnswer
from memplan.report.batch import json as batch_json
from memplan.runtime.adaptive.finder import find_batch
from memplan.runtime.adaptive.records import Ended, FoundBatch
from memplan.units import Bytes


def found(capacity: int, **options: Any) -> FoundBatch:
    def step_for(size: int) -> None:
        assert size >= 1
        if size > capacity:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    return find_batch(step_for, release=lambda: None, **options)


@given(
    capacity=st.integers(0, 5000),
    start=st.integers(1, 6000),
    multiple=st.integers(1, 64),
    most=st.none() | st.integers(64, 6000),
    prediction=st.none() | st.integers(0, 6000),
)
def test_it_is_the_largest_allowed(
    capacity: int, start: int, multiple: int, most: int | None, prediction: int | None
) -> None:
    answer = found(capacity, start=start, multiple_of=multiple, most=most, prediction=prediction)
    runs = capacity // multiple * multiple
    if most is not None and most // multiple * multiple <= runs:
        assert (answer.size, answer.ended) == (most // multiple * multiple, Ended.LIMIT)
    else:
        assert (answer.size, answer.ended) == (runs, Ended.OPTIMAL if runs else Ended.INFEASIBLE)
        assert answer.fails_at == runs + multiple
    tried = [each.size for each in answer.tries]
    assert len(set(tried)) == len(tried)
    assert all(size % multiple == 0 and size <= (most or size) for size in tried)
    assert all(each.fits == (each.size <= capacity) for each in answer.tries)


@given(capacity=st.integers(1, 10**6))
def test_a_right_prediction_takes_two_tries(capacity: int) -> None:
    answer = found(capacity, prediction=capacity)
    assert [each.size for each in answer.tries] == [capacity, capacity + 1]


@given(capacity=st.integers(1, 10**5), prediction=st.integers(1, 10**5))
def test_a_wrong_one_takes_few(capacity: int, prediction: int) -> None:
    # Jumps of 1, 2, 4 … reach across the error; bisection comes back over the last jump.
    error = abs(capacity - prediction) + 1
    assert len(found(capacity, prediction=prediction).tries) <= 2 * ceil(log2(error + 1)) + 2


@given(capacity=st.integers(1, 10**6))
def test_without_one_doubling_and_bisection(capacity: int) -> None:
    assert len(found(capacity).tries) <= 2 * ceil(log2(capacity + 1)) + 1


def report(*names: str, value: int = 24, variable: Any = "batch_size") -> str:
    answer = BatchAnswer(
        variable=variable, value=value, device_bytes=Bytes(1), next_device_bytes=Bytes(2), limit_bytes=Bytes(1),
        ended="exact", traced=(1, 2), differing=0, seconds=1.0,
    )  # fmt: skip
    return batch_json.render("model.py", [(load_profile(name), answer) for name in names])


def test_what_memplan_batch_wrote_is_read(tmp_path: Path) -> None:
    file = tmp_path / "batch.json"
    file.write_text(report("h100-80g", "a100-40g"))
    assert [each.size for each in found(24, prediction=file, gpu="a100-40g").tries] == [24, 25]
    assert len(found(24, prediction=json.loads(report("h100-80g"))).tries) == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "cannot be read"),
        ("[]", "no report of `memplan batch`"),
        ('{"command": "batch", "results": []}', "no report of `memplan batch`"),
        ('{"command": "estimate", "results": [{}]}', "no report of `memplan batch`"),
        (report("h100-80g", "a100-40g"), "several GPUs"),
        (report("h100-80g", variable="seq_len"), "not of a batch size"),
    ],
)
def test_files_that_foretell_nothing(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "batch.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=says) as caught:
        found(24, prediction=file)
    assert str(file) in str(caught.value)
    with pytest.raises(UsageError, match="no GPU 'other'"):
        found(24, prediction=json.loads(report("h100-80g")), gpu="other")


def test_nothing_of_a_try_is_left_in_the_next() -> None:
    alive: list[weakref.ref[torch.Tensor]] = []

    def step_for(size: int) -> torch.Tensor:
        assert all(each() is None for each in alive)
        weight = torch.ones(4, requires_grad=True)
        activation = (weight * torch.ones(size, 4)).exp()
        alive.append(weakref.ref(activation))
        if size > 9:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return activation

    gc.disable()  # Cycles would be found by a collection: there are to be none.
    try:
        assert find_batch(step_for, release=lambda: None).size == 9
    finally:
        gc.enable()
    assert len(alive) == 8


def test_time_and_tries_are_limited() -> None:
    answer = found(1000, max_tries=4)
    assert (answer.size, answer.ended, answer.fails_at, len(answer.tries)) == (8, Ended.TIMED_OUT, 0, 4)
    slow = find_batch(lambda _: time.sleep(0.02), time_limit=0.05)
    assert slow.ended is Ended.TIMED_OUT
    assert 1 <= slow.size < 16
    assert found(1000, time_limit=0).size == 0


def test_other_errors_are_not_for_want_of_memory() -> None:
    def step_for(size: int) -> None:
        raise ValueError(f"no batch of {size}")

    with pytest.raises(ValueError, match="no batch of 1"):
        find_batch(step_for)


def test_all_wrong_numbers_are_named() -> None:
    with pytest.raises(UsageError) as caught:
        found(3, start=0, most=3, multiple_of=4, time_limit=-1.0, max_tries=0)
    for name in ("start", "most", "time_limit", "max_tries"):
        assert name in str(caught.value)
