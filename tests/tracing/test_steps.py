"""Steps are traced until one leaves what it found, and the loop's own names keep what a real loop keeps."""

from collections.abc import Iterator

import torch

from memplan.replay.stream import request_stream
from memplan.tracing.records import DeviceTraits, Trace
from tests.tracing.jobs import source, trace
from tests.tracing.real_memory import peak, real_allocations

FLOAT = 4
GPU = DeviceTraits(kind="cuda", capability=(8, 0))


def linear() -> torch.nn.Module:
    return torch.nn.Linear(256, 256, bias=False)


def rows(size: int) -> torch.Tensor:
    return torch.randn(size, 256)


def total(output: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
    return output.square().sum()


def sgd(parameters: Iterator[torch.nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=False)


def predicted_peak(recorded: Trace) -> int:
    sizes = [storage.nbytes for storage in recorded.storages]
    return peak([sizes[key] if action == "alloc" else -sizes[key] for action, key, _ in recorded.events])


def test_two_steps_are_enough_for_a_plain_loop() -> None:
    recorded = trace(source(linear, rows, loss=total, optimizer=sgd), batch_size=64)
    assert len(recorded.steps) == 2
    assert recorded.repeats
    assert request_stream(recorded).closes


def test_the_second_step_is_the_one_with_the_old_output_alive() -> None:
    """A real loop's peak, as the real allocator reports it."""
    recorded = trace(source(linear, rows, loss=total, optimizer=sgd), batch_size=512)

    def real() -> None:
        model = linear()
        optimizer = sgd(model.parameters())
        for _ in range(3):
            batch = None
            batch = rows(512)
            output = model(batch)
            loss = total(output, batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    # Python numbers become one-element tensors inside C++, which no dispatch mode sees.
    assert abs(predicted_peak(recorded) - peak(real_allocations(real))) <= 64


def test_accumulated_micro_batches_are_one_step() -> None:
    recorded = trace(source(linear, rows, loss=total, optimizer=sgd), batch_size=64, grad_accum=3)
    assert len(recorded.steps) == 2
    step = recorded.ops[recorded.steps[1].first_op : recorded.steps[1].end_op]
    assert sum(op.name == "aten.mm.default" and op.phase == "forward" for op in step) == 3
    weights = [storage for storage in recorded.storages if storage.role == "gradient"]
    # One weight gradient a step: later micro-batches add into the first one's memory.
    assert sum(storage.nbytes == 256 * 256 * FLOAT for storage in weights) == len(recorded.steps)


def test_a_growing_step_is_told_and_its_later_ones_are_not_predicted() -> None:
    kept: list[torch.Tensor] = []

    class Leaky(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            output = super().forward(x)
            kept.append(output)
            return output

    recorded = trace(source(lambda: Leaky(256, 256), rows, loss=total, optimizer=sgd), batch_size=64)
    kept.clear()
    assert not recorded.repeats
    assert any("differ, the last one by 64.00 KiB" in sentence for sentence in recorded.assumptions)


def test_a_whole_step_of_the_user_replaces_the_loop() -> None:
    calls: list[str] = []

    def train_step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
        calls.append("step")
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()

    recorded = trace(source(linear, rows, optimizer=sgd, train_step=train_step), batch_size=8)
    assert len(calls) == len(recorded.steps)
    assert {"forward", "backward", "optimizer"} == {op.phase for op in recorded.ops}


def test_inference_keeps_nothing_for_backward() -> None:
    recorded = trace(source(linear, rows), batch_size=8, mode="inference")
    assert {op.phase for op in recorded.ops} == {"forward"}
    assert not [storage for storage in recorded.storages if storage.role in ("gradient", "optimizer_state")]


def test_parameters_and_batches_move_to_the_device_and_counters_stay_on_the_host() -> None:
    given = source(linear, rows, loss=total, optimizer=torch.optim.AdamW)
    recorded = trace(given, GPU, batch_size=8)
    places = {storage.name: storage.place for storage in recorded.storages if storage.role in ("parameter", "input")}
    assert places == {"weight": "device", "batch": "device"}
    state = [storage for storage in recorded.storages if storage.role == "optimizer_state"]
    assert [storage.place for storage in state if storage.nbytes == FLOAT] == ["host"]


def test_reduced_precision_casts_the_model_and_its_batch() -> None:
    recorded = trace(source(linear, rows, loss=total, optimizer=sgd), batch_size=8, precision="bf16")
    sizes = {storage.name: storage.nbytes for storage in recorded.storages if storage.role in ("parameter", "input")}
    assert sizes == {"weight": 256 * 256 * 2, "batch": 8 * 256 * 2}


def test_several_optimizers_of_one_target_all_step() -> None:
    def pair(parameters: Iterator[torch.nn.Parameter]) -> dict[str, torch.optim.Optimizer]:
        weight, bias = parameters
        return {"weight": torch.optim.Adam([weight]), "bias": torch.optim.SGD([bias], momentum=0.9)}

    recorded = trace(source(lambda: torch.nn.Linear(256, 256), rows, loss=total, optimizer=pair), batch_size=4)
    state = [storage.name for storage in recorded.storages if storage.role == "optimizer_state"]
    assert recorded.optimizers == ("Adam", "SGD")
    assert set(state) == {"weight", "bias"}
