"""``--offload-activations``: what stays on the device, what waits on the host, and that the gradients are the same."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch import nn

from memplan.errors import UsageError
from memplan.tracing.offloaded import offloading
from memplan.tracing.records import DeviceTraits, Trace
from tests.tracing.jobs import CPU, source, trace

CUDA = DeviceTraits(kind="cuda")
LAYERS, TOKENS, WIDTH = 12, 64, 32
SIZE = 4 * TOKENS * WIDTH
LEAVING = 5
"""torchtune, training/_activation_offloading.py: max_fwd_stash_size."""


def model() -> nn.Module:
    return nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Sigmoid()) for _ in range(LAYERS)))


def batch(_: int) -> torch.Tensor:
    return torch.zeros(TOKENS, WIDTH)


def traced(device: DeviceTraits = CUDA, *, offload: bool = True, **options: Any) -> Trace:
    job = source(model, batch, loss=lambda output, _: output.sum())
    return trace(job, device, offload_activations=offload, **options)


def alive_before_backward(found: Trace, place: str) -> Counter[int]:
    """Sizes of what ops made that is alive when the last step's backward begins."""
    step = found.steps[-1]
    first = next(op.index for op in found.ops[step.first_op :] if op.phase == "backward")
    alive: Counter[int] = Counter()
    for event in found.events[: step.end_event]:
        storage = found.storages[event.storage]
        if event.op < first and storage.role == "intermediate" and storage.place == place:
            alive[storage.nbytes] += 1 if event.action == "alloc" else -1
    return alive


def test_only_the_last_few_are_on_the_device_when_backward_begins() -> None:
    # Autograd saves each sigmoid's output, twice but for the last: for itself and for the next layer.
    # The input of the first layer is the batch, which is saved for it, too.
    kept = alive_before_backward(traced(offload=False), "device")
    assert kept[SIZE] == LAYERS
    left = alive_before_backward(traced(), "device")
    assert 1 <= left[SIZE] <= LEAVING
    assert alive_before_backward(traced(), "pinned")[SIZE] == 2 * LAYERS


def test_backward_brings_back_one_at_a_time() -> None:
    found = traced()
    live = most = 0
    step = found.steps[-1]
    for event in found.events[step.first_event : step.end_event]:
        storage = found.storages[event.storage]
        if storage.nbytes == SIZE and storage.place == "device" and found.ops[storage.birth].phase == "backward":
            live += 1 if event.action == "alloc" else -1
            most = max(most, live)
    # The gradient that comes in, the one that goes out, and what is saved.
    assert most <= 4


def test_parameters_and_small_tensors_stay() -> None:
    found = traced()
    assert {each.nbytes for each in found.storages if each.place == "pinned"} == {SIZE}


def test_the_host_is_empty_again_and_the_step_repeats() -> None:
    found = traced()
    assert found.repeats
    end = found.steps[-1].end_event
    alive = Counter(event.storage for event in found.events[:end] if event.action == "alloc")
    alive.subtract(event.storage for event in found.events[:end] if event.action == "free")
    left = [found.storages[each] for each, count in alive.items() if count]
    assert not [each for each in left if each.place == "pinned"]


def test_gradients_are_those_of_the_plain_model() -> None:
    given, data = model(), torch.randn(TOKENS, WIDTH)
    given(data).sum().backward()
    plain = [each.grad for each in given.parameters()]
    given.zero_grad()
    offloading(lambda module, x: module(x), "cuda")(given, data).sum().backward()
    for expected, parameter in zip(plain, given.parameters(), strict=True):
        assert expected is not None
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, expected, rtol=0, atol=0)


def test_checkpoints_inputs_are_offloaded_too() -> None:
    plain = alive_before_backward(traced(offload=False, checkpoint="full"), "device")
    offloaded = alive_before_backward(traced(checkpoint="full"), "device")
    assert sum(size * count for size, count in offloaded.items()) < sum(size * count for size, count in plain.items())


def test_the_cpu_is_refused() -> None:
    with pytest.raises(UsageError, match="are on the host"):
        traced(CPU)
