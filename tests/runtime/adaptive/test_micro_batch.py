"""Steps that die and are done again: gradients equal to those of the step that did not."""

import gc
import weakref
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from memplan.errors import UsageError
from memplan.runtime.adaptive.micro_batch import AutoMicroBatch
from tests.runtime.adaptive.shortage import Shortage, Wide, difference, gradients, net

TOLERANCE = 1e-12
IGNORED = -100


def nothing() -> None:
    """A collection of the whole test process takes longer than the steps here."""


def rows(count: int, seed: int = 1) -> dict[str, torch.Tensor]:
    """Rows of 3; of their labels about a third do not count."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 5, (count,), generator=random)
    labels[torch.rand(count, generator=random) < 0.3] = IGNORED
    labels[0] = 2
    return {"rows": torch.randn(count, 3, generator=random, dtype=torch.float64), "labels": labels}


def mean_of_labels(model: nn.Module) -> Callable[[Any], torch.Tensor]:
    return lambda batch: functional.cross_entropy(model(batch["rows"]), batch["labels"], ignore_index=IGNORED)


def mean_of_rows(model: nn.Module) -> Callable[[Any], torch.Tensor]:
    return lambda batch: model(batch["rows"]).pow(2).mean()


def sum_of_rows(model: nn.Module) -> Callable[[Any], torch.Tensor]:
    return lambda batch: model(batch["rows"]).pow(2).sum()


LOSSES: dict[str, tuple[Any, dict[str, Any]]] = {
    "mean of labels": (mean_of_labels, {"weight": lambda batch: (batch["labels"] != IGNORED).sum()}),
    "mean of rows": (mean_of_rows, {}),
    "sum of rows": (sum_of_rows, {"reduction": "sum"}),
}


@given(
    kind=st.sampled_from(sorted(LOSSES)),
    count=st.integers(1, 17),
    micro_batch=st.none() | st.integers(1, 20),
    at=st.sets(st.integers(0, 250), max_size=3),
    has_gradients=st.booleans(),
)
def test_gradients_are_those_of_the_whole_batch(
    kind: str, count: int, micro_batch: int | None, at: set[int], *, has_gradients: bool
) -> None:
    loss_of, options = LOSSES[kind]
    model, batch = net(), rows(count)
    if has_gradients:
        mean_of_rows(model)(rows(2, seed=5)).backward()
    whole = deepcopy(model)
    for copy, original in zip(whole.parameters(), model.parameters(), strict=True):
        copy.grad = None if original.grad is None else original.grad.clone()
    before = gradients(model)
    expected = loss_of(whole)(batch)
    expected.backward()
    expected = expected.detach()
    step = AutoMicroBatch(model, loss_of(model), micro_batch=micro_batch, release=nothing, **options)
    try:
        with Shortage(*at) as shortage:
            done = step(batch)
    except torch.OutOfMemoryError as error:
        # A single row died: everything is as it was.
        assert "of one sample" in str(error)  # noqa: PT017 - it need not come.
        assert all(
            (old is None and new is None) or torch.equal(old, new)
            for old, new in zip(before.values(), gradients(model).values(), strict=True)
        )
        return
    assert difference(model, whole) < TOLERANCE
    assert abs(float(done.loss - expected)) <= TOLERANCE * max(1.0, abs(float(expected)))
    assert (done.retries, not done.loss.requires_grad) == (shortage.raised, True)


def ops_of_a_step(count: int) -> int:
    model, batch = net(), rows(count)
    with Shortage() as counted:
        AutoMicroBatch(model, mean_of_rows(model))(batch)
    return counted.count


def test_wherever_it_dies_forward_or_backward() -> None:
    died_with_gradients = 0
    for op in range(ops_of_a_step(6)):
        model, whole = net(), net()
        mean_of_rows(whole)(rows(6)).backward()
        seen = []
        original = model.last.weight.register_hook(lambda _, seen=seen: seen.append(1))
        batch = rows(6)
        with Shortage(op) as shortage:
            done = AutoMicroBatch(model, mean_of_rows(model), release=nothing)(batch)
        original.remove()
        assert shortage.raised == 1
        assert (done.retries, done.samples) == (1, (3, 3))
        assert difference(model, whole) < TOLERANCE
        died_with_gradients += len(seen) == 3
    # The last layer's gradient was there already when one in three of these steps died: it was not doubled.
    assert died_with_gradients > 10


def test_a_step_without_shortage_is_the_plain_step_to_the_bit() -> None:
    model, whole = net(), net()
    AutoMicroBatch(model, mean_of_labels(model))(rows(9))
    mean_of_labels(whole)(rows(9)).backward()
    assert difference(model, whole) == 0


def test_a_step_done_again_is_that_of_the_smaller_size_to_the_bit() -> None:
    def trained(micro_batch: int | None, *at: int) -> nn.Module:
        model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1)).double()
        torch.manual_seed(2)
        for parameter in model.parameters():
            nn.init.uniform_(parameter)
        batch = rows(8)
        with Shortage(*at) as shortage:
            AutoMicroBatch(model, mean_of_rows(model), micro_batch=micro_batch)(batch)
        assert shortage.raised == len(at)
        return model

    from_the_start, died = trained(4), trained(None, 25)
    assert difference(from_the_start, died) == 0  # The same masks, therefore.
    for name, buffer in from_the_start.named_buffers():
        assert torch.equal(buffer, dict(died.named_buffers())[name]), name


def test_memory_decides_on_the_size() -> None:
    model, whole = net(), net()
    step = AutoMicroBatch(model, mean_of_rows(model), patience=3)
    mean_of_rows(whole)(rows(23)).backward()
    with Wide(6, width=4):
        first = step(rows(23))
        assert difference(model, whole) < TOLERANCE
        assert (first.retries, max(first.samples), sum(first.samples)) == (2, 6, 23)
        assert step(rows(23)).retries == 0
        model.zero_grad()
        assert [step(rows(23)).retries for _ in range(5)].count(1) <= 1
    # The shortage is over: sizes come back to the whole batch, in a while.
    for _ in range(60):
        done = step(rows(23))
    assert done.samples == (23,)


def test_one_row_too_many_is_said() -> None:
    model = net()
    mean_of_rows(model)(rows(3)).backward()
    before = gradients(model)
    random = torch.get_rng_state()
    with Wide(0, width=4), pytest.raises(torch.OutOfMemoryError, match="of one sample is too large: CUDA out of"):
        AutoMicroBatch(model, mean_of_rows(model))(rows(5))
    after = gradients(model)
    assert all(old is after[name] or torch.equal(old, after[name]) for name, old in before.items())
    assert torch.equal(random, torch.get_rng_state())


def test_other_errors_leave_gradients_alone() -> None:
    model, batch = net(), rows(5)
    with Shortage(20, error=lambda: ValueError("a bug")), pytest.raises(ValueError, match="a bug"):
        AutoMicroBatch(model, mean_of_rows(model))(batch)
    assert all(gradient is None for gradient in gradients(model).values())


def test_nothing_of_the_dead_step_is_alive_when_it_is_done_again() -> None:
    model = net()
    alive: list[weakref.ref[torch.Tensor]] = []

    def loss_for(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        assert all(each() is None for each in alive)
        hidden = model(batch["rows"])
        alive.append(weakref.ref(hidden))
        return hidden.pow(2).mean()

    batch = rows(4)
    gc.disable()
    try:
        with Shortage(15) as shortage:
            AutoMicroBatch(model, loss_for, release=nothing)(batch)
    finally:
        gc.enable()
    assert (shortage.raised, len(alive)) == (1, 3)


def test_gradients_may_be_scaled() -> None:
    model, whole = net(), net()
    step = AutoMicroBatch(model, mean_of_rows(model), micro_batch=2, backward=lambda loss: (loss * 1024).backward())
    step(rows(5))
    (mean_of_rows(whole)(rows(5)) * 1024).backward()
    assert difference(model, whole) < TOLERANCE


def test_batches_of_any_make() -> None:
    model, whole = net(), net()
    data = rows(7)
    batch = ([data["rows"], {"labels": data["labels"]}], torch.tensor(2.0), "name")

    def loss_for(part: Any) -> torch.Tensor:
        [inputs, rest], factor, name = part
        assert name == "name"
        return factor * functional.cross_entropy(whole_or(inputs), rest["labels"], ignore_index=IGNORED)

    whole_or = model
    AutoMicroBatch(
        model, loss_for, micro_batch=3, weight=lambda part: (part[0][1]["labels"] != IGNORED).sum()
    )(batch)  # fmt: skip
    whole_or = whole
    loss_for(batch).backward()
    assert difference(model, whole) < TOLERANCE


def test_what_cannot_be_split_is_refused() -> None:
    model = net()
    step = AutoMicroBatch(model, mean_of_rows(model), micro_batch=2)
    with pytest.raises(UsageError, match=r"first dimensions are \[3, 5\]"):
        step({"rows": torch.ones(5, 3), "mask": torch.ones(3)})
    with pytest.raises(UsageError, match="no tensor"):
        step({"rows": [1, 2, 3]})
    greedy = AutoMicroBatch(model, mean_of_rows(model), micro_batch=2, split=lambda batch, size: [batch])
    with pytest.raises(UsageError, match="gave 5 samples where 2 were the most"):
        greedy(rows(5))


def test_all_wrong_options_are_named() -> None:
    with pytest.raises(UsageError) as caught:
        AutoMicroBatch(net(), sum, reduction="median", micro_batch=0, patience=0)
    assert all(word in str(caught.value) for word in ("median", "micro_batch", "patience"))
    with pytest.raises(UsageError, match="a sum has none"):
        AutoMicroBatch(net(), sum, reduction="sum", weight=len)
