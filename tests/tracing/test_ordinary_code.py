"""What ordinary training code does around its step: compile, wrap, load with workers, print, bring its own step."""

import copy
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from memplan.errors import UsageError
from memplan.tracing.compiled import NOTE
from memplan.tracing.placing import MIXED
from memplan.tracing.records import DeviceTraits, Trace
from tests.tracing.jobs import CPU, source, trace

GPU = DeviceTraits(kind="cuda", capability=(8, 0))
WIDTH, FLOAT = 256, 4


def linear() -> nn.Module:
    return nn.Linear(WIDTH, WIDTH)


def rows(size: int) -> torch.Tensor:
    return torch.randn(size, WIDTH)


def total(output: torch.Tensor, _: object) -> torch.Tensor:
    return output.sum()


def sgd(parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def history(recorded: Trace) -> list[tuple[str, int]]:
    """What was allocated and freed, in order."""
    sizes = {key: storage.nbytes for key, storage in enumerate(recorded.storages)}
    return [(event.action, sizes[event.storage]) for event in recorded.events]


def compiled_module() -> nn.Module:
    return torch.compile(linear(), mode="max-autotune")


def compiled_in_place() -> nn.Module:
    model = linear()
    model.compile()
    return model


def compiled_forward() -> nn.Module:
    class Net(nn.Linear):
        @torch.compile(dynamic=False)
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x)

    return Net(WIDTH, WIDTH)


@pytest.mark.parametrize("device", [GPU, CPU], ids=["cuda", "cpu"])
@pytest.mark.parametrize("model", [compiled_module, compiled_in_place, compiled_forward])
def test_what_is_compiled_is_traced_as_eager_code_and_said_so(
    device: DeviceTraits, model: Callable[[], nn.Module]
) -> None:
    before = torch.compile
    compiled = trace(source(model, rows, loss=total, optimizer=sgd), device)
    plain = trace(source(linear, rows, loss=total, optimizer=sgd), device)
    assert history(compiled) == history(plain)
    assert NOTE in compiled.not_modelled
    assert NOTE not in plain.not_modelled
    assert torch.compile is before


def test_what_is_compiled_and_never_called_is_no_matter() -> None:
    """bitsandbytes compiles its kernels for other devices when it is imported."""

    def model() -> nn.Module:
        torch.compile(torch.sin)
        return linear()

    assert NOTE not in trace(source(model, rows, loss=total, optimizer=sgd), GPU).not_modelled


@pytest.mark.parametrize("device", [GPU, CPU], ids=["cuda", "cpu"])
def test_data_parallel_on_one_device_is_the_module_itself(device: DeviceTraits) -> None:
    wrapped = trace(source(lambda: nn.DataParallel(linear()), rows, loss=total, optimizer=sgd), device)
    assert history(wrapped) == history(trace(source(linear, rows, loss=total, optimizer=sgd), device))


@dataclasses.dataclass(frozen=True)
class Sample:
    """A batch as some programs write it."""

    x: torch.Tensor
    labels: torch.Tensor


class OnSample(nn.Linear):
    """Takes a whole batch."""

    def forward(self, batch: Sample) -> torch.Tensor:
        return nn.functional.cross_entropy(super().forward(batch.x), batch.labels)


@pytest.mark.parametrize(("precision", "size"), [("fp32", 4), ("bf16", 2)])
def test_a_dataclass_is_a_batch(precision: str, size: int) -> None:
    recorded = trace(
        source(lambda: OnSample(WIDTH, 10), lambda size: Sample(rows(size), torch.randint(0, 10, (size,)))),
        GPU,
        batch_size=8,
        precision=precision,
    )
    inputs = {storage.name: storage.nbytes for storage in recorded.storages if storage.role == "input"}
    assert inputs == {"batch.x": 8 * WIDTH * size, "batch.labels": 8 * 8}


def test_a_loader_with_workers_makes_the_batch() -> None:
    def batch(size: int) -> Any:
        data = TensorDataset(torch.randn(64, WIDTH), torch.randint(0, 10, (64,)))
        return next(iter(DataLoader(data, size, shuffle=True, num_workers=2, persistent_workers=True, timeout=30)))

    recorded = trace(source(linear, batch, loss=total, optimizer=sgd), GPU, batch_size=8)
    inputs = [storage.nbytes for storage in recorded.storages if storage.role == "input"]
    assert set(inputs) == {8 * WIDTH * FLOAT, 8 * 8}


def plain_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
    model(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def test_a_step_may_print_its_loss() -> None:
    printed = []

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
        loss = model(batch).sum()
        printed.append(f"{loss:.3f}")
        loss.backward()

    trace(source(linear, rows, train_step=step), GPU)
    assert set(printed) == {"1.000"}


@pytest.mark.parametrize(
    ("option", "value"),
    [("precision", "bf16-mixed"), ("precision", "fp16-mixed"), ("grad_accum", 2), ("clip_grad_norm", 1.0)],
)
def test_options_of_our_loop_are_refused_beside_a_step_of_the_users_own(option: str, value: object) -> None:
    given = source(linear, rows, train_step=plain_step)
    with pytest.raises(UsageError, match="--" + option.replace("_", "-")):
        trace(given, GPU, **{option: value})
    assert trace(given, GPU, mode="inference", **{option: value}).ops


def test_an_implementation_is_refused_for_an_optimizer_of_the_users_own() -> None:
    given = source(linear, rows, loss=total, optimizer=sgd)
    with pytest.raises(UsageError, match="--optimizer-impl"):
        trace(given, GPU, optimizer_impl="fused")
    assert trace(given, GPU, optimizer="sgd", optimizer_impl="fused").ops


@pytest.mark.parametrize("device", [GPU, CPU])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_tensor_is_made_of_scalars(device: DeviceTraits, dtype: torch.dtype) -> None:
    made: list[torch.Tensor] = []

    def model() -> nn.Module:
        made[:] = [torch.tensor([2 * each for each in torch.rand(5, dtype=dtype)])]
        return linear()

    trace(source(model, rows, loss=total), device)
    assert [(each.shape, each.dtype) for each in made] == [((5,), dtype)]


@pytest.mark.parametrize("device", [GPU, CPU])
def test_a_scaled_step_runs_the_optimizer(device: DeviceTraits) -> None:
    recorded = trace(source(linear, rows, loss=total), device, precision="fp16-mixed")
    ran = [op.name for op in recorded.ops if op.phase == "optimizer"]
    check = ran.index("aten._amp_foreach_non_finite_check_and_unscale_.default")
    assert any("addcdiv" in name for name in ran[check:])
    assert "aten._amp_update_scale_.default" in ran[check:]
    assert "gradient scaling finds no overflow" in recorded.assumptions


@pytest.mark.parametrize("on_device", [True, False])
def test_a_copy_left_on_the_host_is_told(on_device: bool) -> None:
    kept: list[nn.Module] = []

    def model() -> nn.Module:
        made = linear()
        kept[:] = [copy.deepcopy(made).requires_grad_(False)]
        if on_device:
            kept[0].to("cuda")
        return made

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
        plain_step(model, optimizer, batch)
        with torch.no_grad():
            for mean, parameter in zip(kept[0].parameters(), model.parameters(), strict=True):
                mean.lerp_(parameter, 0.1)

    recorded = trace(source(model, rows, train_step=step, optimizer=sgd), GPU)
    told = [sentence for sentence in recorded.assumptions if sentence.startswith(MIXED)]
    assert bool(told) is not on_device


def test_parts_of_a_sparse_gradient_lie_on_the_device() -> None:
    recorded = trace(
        source(
            lambda: nn.EmbeddingBag(1000, 64, sparse=True),
            lambda size: torch.randint(0, 1000, (size, 32)),
            loss=total,
            optimizer=lambda parameters: torch.optim.SparseAdam(list(parameters)),
        ),
        GPU,
        batch_size=8,
    )
    gradients = [storage for storage in recorded.storages if storage.role == "gradient"]
    # One row of 64 numbers for each index of the batch.
    assert 8 * 32 * 64 * FLOAT in {storage.nbytes for storage in gradients}
    assert all(storage.place == "device" for storage in gradients)
    assert any(sentence.startswith("sparse tensors") for sentence in recorded.not_modelled)


class Packed(torch.nn.Module):
    """A classifier of padded sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = torch.nn.GRU(16, 32, batch_first=True)

    def forward(self, padded: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = torch.nn.utils.rnn.pack_padded_sequence(padded, lengths.cpu(), batch_first=True, enforce_sorted=False)
        return self.recurrent(packed)[1]


def test_packed_sequences_have_as_many_rows_as_their_lengths_say() -> None:
    def batch(size: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(size, 12, 16), torch.tensor([3, 12, 5, 1])

    given = source(Packed, batch, loss=lambda output, batch: output.sum())
    recorded = trace(given, DeviceTraits(kind="cuda"), batch_size=4)
    packed = next(op for op in recorded.ops if op.name == "aten._pack_padded_sequence.default")
    assert recorded.storages[packed.writes[0]].nbytes == (3 + 12 + 5 + 1) * 16 * 4


def test_comparing_whole_tensors_is_answered_by_assumption() -> None:
    def loss(output: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        assert torch.equal(output, output)
        assert torch.allclose(output, output)
        return output.sum()

    recorded = trace(source(lambda: torch.nn.Linear(4, 4), lambda size: torch.randn(size, 4), loss=loss), batch_size=2)
    assert any("taken to be true, so that the program goes on" in each for each in recorded.assumptions)


def test_an_array_of_numpy_is_copied_once():
    array = np.zeros((1000, 16), np.float32)

    def model():
        table = nn.Embedding(1000, 16)
        table.weight.data = torch.tensor(array, requires_grad=True)
        return table

    job = trace(source(model, lambda size: torch.randint(1000, (size, 3)), loss=lambda output, batch: output.sum()))
    made = [job.storages[event.storage].nbytes for event in job.events[: job.steps[0].first_event]]
    # The table, its copy and the free of the table: of the array itself torch allocates nothing.
    assert [nbytes for nbytes in made if nbytes] == [array.nbytes] * 3
