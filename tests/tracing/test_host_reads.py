"""What leaves torch has stand-ins, and what is drawn at random on the way is drawn for real."""

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from memplan.tracing.draws import Draws
from memplan.tracing.records import Trace, Way
from tests.tracing.jobs import source, trace

WIDTH = 16


def linear() -> torch.nn.Module:
    return torch.nn.Linear(WIDTH, WIDTH)


def forward_of(function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Trace:
    """A job whose loss is computed by a function of output and batch."""
    return trace(source(linear, lambda size: torch.randn(size, WIDTH), loss=function), batch_size=6)


def test_an_assignment_is_solved_on_an_array_of_ones() -> None:
    def loss(output: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        cost = torch.cdist(output.detach(), batch).cpu().numpy()
        assert cost.shape == (6, 6)
        assert np.isfinite(cost).all()
        rows = cost.argmin(0)
        return (output[rows] - batch[np.asarray(rows)]).abs().sum()

    recorded = forward_of(loss)
    assert recorded.repeats
    assert any(".numpy()" in sentence for sentence in recorded.assumptions)


def test_an_array_keeps_the_memory_of_its_tensor() -> None:
    kept: list[Any] = []

    def loss(output: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        kept[:] = [(output.detach() * 2).numpy()[1:]]
        return output.sum()

    recorded = forward_of(loss)
    made = {event.storage for event in recorded.events if event.action == "alloc"}
    freed = {event.storage for event in recorded.events if event.action == "free"}
    held = [recorded.storages[key].nbytes for key in made - freed if recorded.storages[key].role == "intermediate"]
    assert 6 * WIDTH * 4 in held


MANY = 40_000


@pytest.mark.parametrize(
    "made",
    [lambda: torch.randint(0, 10, (MANY,)), lambda: torch.from_numpy(np.arange(MANY) % 10).clone()],
    ids=["drawn", "data"],
)
def test_an_array_takes_no_memory_beside_its_tensor(made: Callable[[], torch.Tensor]) -> None:
    def loss(output: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        assert made().numpy().max() == 9
        return output.sum()

    recorded = forward_of(loss)
    sizes = [recorded.storages[event.storage].nbytes for event in recorded.events if event.action == "alloc"]
    assert sizes.count(8 * MANY) == len(recorded.steps)


def test_data_that_are_copied_and_go_back_are_what_they_were() -> None:
    labels = torch.from_numpy(np.arange(MANY) % 10)

    def loss(output: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        copied = labels.clone()
        assert np.bincount(copied.numpy()).tolist() == [MANY // 10] * 10
        copied.add_(1)
        copied[:5] = 0
        assert copied.numpy().max() == 1  # What an op made of many is not kept: ones stand in for it.
        return output.sum()

    forward_of(loss)


def test_a_gradient_is_no_array() -> None:
    def loss(output: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        with pytest.raises(RuntimeError, match="requires grad"):
            output.numpy()
        return output.sum()

    forward_of(loss)


def test_pickles_copies_and_checkpoints_work_and_no_file_is_written(tmp_path: Path) -> None:
    file = tmp_path / "best.pt"
    file.write_bytes(b"a real checkpoint")

    def train_step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> float:
        again = pickle.loads(pickle.dumps(model))
        assert again(batch).shape == copy.deepcopy(model)(batch).shape
        model(batch).square().mean().backward()
        optimizer.step()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        torch.save(model.state_dict(), io.BytesIO())
        loss = batch.mean()
        return float(f"{loss:.3f}") + int(loss) + loss.tolist()

    recorded = trace(source(linear, lambda size: torch.randn(size, WIDTH), train_step=train_step))
    assert file.read_bytes() == b"a real checkpoint"
    assert any("writes nothing" in sentence for sentence in recorded.assumptions)


def test_places_in_a_data_set_are_drawn_for_real() -> None:
    """The batches of nanoGPT: an assumed place of 1 would make them empty."""
    data = np.arange(10_000) % 50

    def batch(size: int) -> torch.Tensor:
        places = torch.randint(len(data) - 8, (size,))
        order = torch.randperm(size).tolist()
        assert sorted(order) == list(range(size))
        return torch.stack([torch.from_numpy(data[place : place + 8].astype(np.int64)) for place in places])[order]

    shapes = []

    def loss(output: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        shapes.append(tuple(batch.shape))
        return output.sum()

    trace(source(lambda: torch.nn.Embedding(50, 4), batch, loss=loss), batch_size=5)
    assert set(shapes) == {(5, 8)}


def test_lengths_that_are_drawn_are_within_their_bounds_and_named() -> None:
    lengths = []

    def loss(output: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        drawn = torch.randint(4, 9, (3,))
        lengths.append(int((drawn + 1).max()))
        return output[:, : lengths[-1]].sum()

    recorded = forward_of(loss)
    assert all(5 <= length <= 9 for length in lengths)
    assert set(recorded.unsure) == {"other", "most"}
    assert any("drawn anew" in sentence for sentence in recorded.assumptions)


def test_a_place_in_a_list_is_drawn_from_it() -> None:
    """As torchvision's detection transform chooses a size of the image, of lists of one and more."""
    chosen = []

    def loss(output: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        lists = (800,), (640, 672, 704)
        chosen.extend(sizes[int(torch.empty(1).uniform_(0.0, float(len(sizes))).item())] for sizes in lists)
        assert 0 <= torch.rand(2)[1].item() < 1
        return output.sum()

    recorded = forward_of(loss)
    assert chosen[0] == 800
    assert set(recorded.unsure) == {"other", "most"}


@pytest.mark.parametrize(("way", "least", "most"), [("likely", 2.0, 5.0), ("other", 2.0, 2.0), ("most", 4.999, 5.0)])
def test_extremes_of_a_range_are_drawn_where_they_are_asked_for(way: Way, least: float, most: float) -> None:
    result = torch.empty(4)
    drawn = Draws(way).drawn(torch.ops.aten.uniform_.default, (result, 2.0, 5.0), result)
    assert drawn is not None
    assert least <= drawn.min()
    assert drawn.max() <= most
    assert Draws(way).drawn(torch.ops.aten.rand.default, ([17],), torch.empty(17)) is None
