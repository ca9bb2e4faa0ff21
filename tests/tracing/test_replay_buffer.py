"""Replay buffers under the trace: so many samples, on the host or on the device, and nothing else changes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from memplan.errors import UsageError
from memplan.replay.host import host_peak
from memplan.tracing.records import DeviceTraits, Trace
from tests.tracing.jobs import source, trace

CUDA = DeviceTraits(kind="cuda")
SAMPLE = 4 * (3 + 3 + 1) + 8
"""Bytes of a transition: two states of three numbers, a reward, an action."""


def transitions(size: int) -> dict[str, torch.Tensor]:
    return {
        "state": torch.zeros(size, 3),
        "next_state": torch.zeros(size, 3),
        "reward": torch.zeros(size),
        "action": torch.zeros(size, dtype=torch.int64),
    }


class Critic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 1)

    def forward(self, state: torch.Tensor, **_: torch.Tensor) -> torch.Tensor:
        return self.inner(state).sum()


def traced(batch: Callable[[int], Any] = transitions, device: DeviceTraits = CUDA, **options: Any) -> Trace:
    return trace(source(Critic, batch), device, batch_size=5, **options)


def on_device(found: Trace) -> int:
    """Bytes on the device after the last event."""
    signs = {"alloc": 1, "free": -1}
    storages = found.storages
    return sum(
        signs[event.action] * storages[event.storage].nbytes
        for event in found.events
        if storages[event.storage].place == "device"
    )


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_on_the_host_it_takes_nothing_of_the_device(precision: Any) -> None:
    def fed(size: int) -> Any:
        return transitions(size)

    without, found = traced(fed, precision=precision), traced(fed, precision=precision, replay_buffer=1000)
    # Stored as the batch comes, whatever the model computes in.
    assert host_peak(found) - host_peak(without) == 1000 * SAMPLE
    assert on_device(found) == on_device(without)
    assert found.repeats


def test_on_the_device_it_is_a_buffer_for_good() -> None:
    without, found = traced(), traced(replay_buffer=1000, replay_buffer_on="device")
    assert on_device(found) - on_device(without) == 1000 * SAMPLE
    assert host_peak(found) == host_peak(without)
    kept = [each for each in found.storages if each.name.startswith("replay_buffer.") and each.place == "device"]
    assert {each.role for each in kept} == {"buffer"}


def test_on_the_cpu_both_are_its_memory() -> None:
    cpu = DeviceTraits(kind="cpu")
    for place in ("host", "device"):
        found = traced(device=cpu, replay_buffer=1000, replay_buffer_on=place)
        assert on_device(found) - on_device(traced(device=cpu)) == 1000 * SAMPLE


def test_what_does_not_begin_with_samples_is_no_replay() -> None:
    def odd(size: int) -> dict[str, torch.Tensor]:
        return transitions(size) | {"discount": torch.zeros(())}

    with pytest.raises(UsageError, match=r"batch\.discount has shape \[\], which does not begin with the 5 samples"):
        traced(odd, replay_buffer=10)


def test_a_batch_is_known_as_it_comes_from_the_loader() -> None:
    assert traced(precision="bf16").batch == (5 * 12, 5 * 12, 5 * 4, 5 * 8)
