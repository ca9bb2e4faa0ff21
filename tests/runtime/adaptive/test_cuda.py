"""What is asked of CUDA, and what is made of its answers: stubs answer as torch 2.13's documentation says."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from memplan.runtime.adaptive.micro_batch import AutoMicroBatch
from memplan.runtime.adaptive.oom import release_memory
from memplan.runtime.adaptive.pressure import Pressure, Relief, ReliefPolicy
from memplan.runtime.adaptive.relief import PressureRelief, pressure_of, relieve
from tests.runtime.adaptive.shortage import Shortage, net

GIB = 1 << 30


class Card:
    """An allocator with a cache, and a generator of random numbers."""

    def __init__(self) -> None:
        self.allocated, self.reserved, self.emptied = 30 * GIB, 75 * GIB, 0
        self.random = torch.tensor([1, 2], dtype=torch.uint8)

    def empty_cache(self) -> None:
        self.emptied += 1
        self.reserved = self.allocated

    def get_rng_state(self) -> torch.Tensor:
        return self.random.clone()

    def set_rng_state(self, state: torch.Tensor) -> None:
        self.random = state


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    card = Card()
    answers = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "current_device": lambda: 0,
        "device": nullcontext,
        "empty_cache": card.empty_cache,
        "memory_allocated": lambda _: card.allocated,
        "memory_reserved": lambda _: card.reserved,
        "memory_stats": lambda _: {
            "allocated_bytes.all.current": card.allocated,
            "reserved_bytes.all.current": card.reserved,
        },
        "mem_get_info": lambda _: (80 * GIB - card.reserved, 80 * GIB),
        "get_device_properties": lambda _: SimpleNamespace(name="NVIDIA H100", uuid="GPU-1"),
        "get_rng_state": card.get_rng_state,
        "set_rng_state": card.set_rng_state,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    return card


def test_pressure_is_read_from_allocator_and_driver(card: Card) -> None:
    expected = Pressure(used=75 * GIB, total=80 * GIB, cached=45 * GIB, reserved=75 * GIB)
    assert pressure_of(torch.device("cuda:0")) == pressure_of(torch.device("cuda")) == expected


def test_the_cache_is_emptied_once_and_what_it_gave_is_counted(card: Card) -> None:
    watch = PressureRelief(ReliefPolicy(steps=3), device="cuda:0")
    done = [watch.after_step() for _ in range(10)]
    assert done[0] is not None
    assert (done[0].relief, done[0].given_back) == (Relief.COLLECT_AND_EMPTY, 45 * GIB)
    assert done[1:] == [None] * 9  # There is no pressure any more.
    assert (card.emptied, watch.history.given_back) == (1, 45 * GIB)


def test_a_collection_leaves_the_cache_alone(card: Card) -> None:
    assert relieve(Relief.COLLECT, torch.device("cuda:0")).given_back == 0
    assert card.emptied == 0


def test_between_attempts_the_cache_goes_back_and_random_numbers_too(card: Card) -> None:
    model, batch, seen = net(), torch.ones(4, 3, dtype=torch.float64), []

    def loss_for(part: torch.Tensor) -> torch.Tensor:
        seen.append(card.random.tolist())
        card.random = card.random + 1  # Dropout would move the generator on.
        return model(part).sum()

    with Shortage(5):
        done = AutoMicroBatch(model, loss_for, release=release_memory)(batch)
    assert (done.retries, card.emptied) == (1, 1)
    assert seen == [[1, 2], [1, 2], [2, 3]]
