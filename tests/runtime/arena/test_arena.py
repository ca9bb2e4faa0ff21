"""Real steps of unmodified programs in a planned arena: equal results, and no way to be wrong."""

import gc
import threading
from collections.abc import Callable

import pytest
import torch
from torch import nn

from memplan.errors import MemplanError
from memplan.plan.reuse.arena import plan_arena, plan_recording
from memplan.runtime.arena import arena as arenas
from memplan.runtime.arena import native
from memplan.runtime.arena.arena import Arena, record
from memplan.runtime.arena.records import CPU_ALIGNMENT, ArenaPlan, StepRecording
from memplan.units import Bytes
from tests.tracing.real_memory import real_allocations


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    try:
        native.library()
    except MemplanError as error:
        pytest.skip(str(error))


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.Flatten(),
        nn.Linear(16 * 14 * 14, 10),
    )  # fmt: skip


def transformer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "convolutions": (convolutions, (4, 3, 32, 32)),
    "transformer": (transformer, (4, 16, 32)),
}


def made(name: str) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    make, shape = MODELS[name]
    return make(), torch.randn(shape)


def inference(model: nn.Module, batch: torch.Tensor) -> Callable[[], torch.Tensor]:
    def step() -> torch.Tensor:
        with torch.no_grad():
            found: torch.Tensor = model(batch)
            return found

    return step


def training(model: nn.Module, batch: torch.Tensor) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()  # Creates the optimizer's state.
    return step


@pytest.mark.parametrize("name", MODELS)
def test_inference_in_an_arena_is_bit_equal_and_allocates_nothing_but_its_output(name: str) -> None:
    model, batch = made(name)
    step = inference(model.eval(), batch)
    expected = step()
    arena = plan_arena(step)
    with arena:
        found = step()
    assert torch.equal(found, expected)
    counts = arena.counts
    assert counts is not None
    assert (counts.unlike, counts.occupied, counts.alive) == (0, 0, 0)
    assert counts.outside_bytes == found.untyped_storage().nbytes()
    assert counts.planned == sum(offset is not None for offset in arena.plan.offsets) > 3
    assert arena.plan.height < sum(arena.plan.sizes)


@pytest.mark.parametrize("name", MODELS)
def test_whole_training_steps_in_an_arena_leave_the_same_parameters(name: str) -> None:
    plain, batch = made(name)
    step = training(plain, batch)
    for _ in range(4):
        step()
    planned, batch = made(name)
    step = training(planned, batch)
    arena = plan_arena(step)  # Runs one step.
    for _ in range(3):
        with arena:
            step()
        assert arena.counts is not None
        assert (arena.counts.outside_bytes, arena.counts.alive) == (0, 0)
    for one, other in zip(plain.parameters(), planned.parameters(), strict=True):
        assert torch.equal(one, other)


def test_the_profiler_sees_no_allocation_in_an_arena() -> None:
    model, batch = made("transformer")
    step = inference(model.eval(), batch)
    arena = plan_arena(step)

    def in_arena() -> None:
        with arena:
            step()

    in_arena()
    took = [nbytes for nbytes in real_allocations(in_arena) if nbytes > 0]
    assert took == [batch.untyped_storage().nbytes()]  # The output has the input's size.


def test_another_step_than_recorded_is_served_and_counted() -> None:
    model, batch = made("transformer")
    arena = plan_arena(inference(model.eval(), batch))
    other = torch.randn(7, 16, 32)
    expected = inference(model, other)()
    with arena:
        found = inference(model, other)()
    assert torch.equal(found, expected)
    assert arena.counts is not None
    assert arena.counts.unlike > 0


def test_what_somebody_still_uses_is_never_overwritten() -> None:
    kept: list[torch.Tensor] = []

    def step(*, keep: bool = False) -> None:
        for number in range(4):
            tensor = torch.full((256,), float(number))
            if keep:
                kept.append(tensor)
            del tensor

    arena = plan_arena(step)
    assert arena.plan.height == 1024  # All four share one place.
    for _ in range(2):
        with arena:
            step(keep=True)
    assert [tensor[0].item() for tensor in kept] == [0.0, 1.0, 2.0, 3.0] * 2
    assert all(bool((tensor == tensor[0]).all()) for tensor in kept)
    assert arena.counts is not None
    assert (arena.counts.occupied, arena.counts.alive) == (4, 1)
    # The memory outlives the arena for as long as somebody is in it.
    del arena
    gc.collect()
    assert bool((kept[0] == 0).all())
    assert len(arenas._outlived) == 1
    kept.clear()
    record(lambda: None)
    assert not arenas._outlived


def test_a_wrong_plan_overwrites_nothing() -> None:
    wrong = ArenaPlan(sizes=(64, 64), offsets=(0, 32), height=Bytes(128))
    with Arena(wrong) as arena:
        one = torch.full((16,), 1.0)
        other = torch.full((16,), 2.0)
    assert (one == 1).all()
    assert (other == 2).all()
    assert arena.counts is not None
    assert arena.counts.occupied == 1


def test_offsets_beyond_the_arena_are_not_used() -> None:
    with Arena(ArenaPlan(sizes=(64,), offsets=(128,), height=Bytes(128))) as arena:
        torch.ones(16)
    assert arena.counts is not None
    assert (arena.counts.planned, arena.counts.occupied) == (0, 1)


def test_other_threads_are_left_alone() -> None:
    arena = plan_arena(lambda: torch.ones(100))
    found: list[torch.Tensor] = []
    with arena:
        thread = threading.Thread(target=lambda: found.append(torch.ones(100)))
        thread.start()
        thread.join()
    assert arena.counts is not None
    assert (arena.counts.planned, arena.counts.unlike, arena.counts.outside_bytes) == (0, 0, 0)
    assert bool((found[0] == 1).all())


def test_one_at_a_time_and_errors_end_a_step() -> None:
    arena = plan_arena(lambda: torch.ones(100))
    with arena, pytest.raises(MemplanError, match="a step in an arena is under way"):
        record(lambda: None)
    with pytest.raises(ZeroDivisionError), arena:
        1 / 0  # noqa: B018
    with arena:
        torch.ones(100)
    with pytest.raises(ZeroDivisionError):
        record(lambda: 1 / 0)
    assert record(lambda: None).events == ()


def test_a_step_that_allocates_on_a_card_is_told_that_this_stays_outside(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    requests = {"allocation.all.allocated": 7}
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda _: dict(requests))
    record(lambda: None)
    assert caplog.messages == []
    record(lambda: requests.update({"allocation.all.allocated": 10}))
    assert caplog.messages == [
        "3 allocations of this step are on CUDA devices: they stay with PyTorch's allocator, an arena is of CPU tensors"
    ]


def test_a_recording_says_who_is_alive_when() -> None:
    def step() -> torch.Tensor:
        first = torch.empty(10)
        second = torch.empty(30)
        del first
        return second

    assert record(step).events == ((0, 40), (1, 120), (0, -1))


def test_a_plan_of_a_recording_aligns_and_leaves_out_what_outlives_it() -> None:
    recording = StepRecording(events=((0, 100), (1, 70), (2, 30), (0, -1), (1, -1)))
    plan = plan_recording(recording)
    assert plan.sizes == (100, 70, 30)
    assert plan.offsets[2] is None
    assert plan.height == 4 * CPU_ALIGNMENT
    assert sorted(offset for offset in plan.offsets if offset is not None) in ([0, 128], [0, 64])
