"""What a model's own ``to`` and ``_apply`` move lies on the device, as in a program that calls ``model.to("cuda")``."""

from collections.abc import Callable
from typing import Any

import torch

from memplan.tracing.records import DeviceTraits
from tests.tracing.jobs import source, trace

GPU = DeviceTraits(kind="cuda", capability=(8, 0))
ROWS, WIDTH = 500, 16


class Anchored(torch.nn.Module):
    """YOLO's head: its anchors are plain tensors, moved along by ``_apply``."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(WIDTH, WIDTH)
        self.anchors = torch.zeros(ROWS, WIDTH)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> "Anchored":
        super()._apply(fn, recurse)
        self.anchors = fn(self.anchors)
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.layer(x) @ self.anchors.T).mean()


class Gridded(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = Anchored()
        self.grid = torch.zeros(ROWS + 1, WIDTH)

    def to(self, *args: Any, **options: Any) -> "Gridded":
        super().to(*args, **options)
        self.grid = self.grid.to(*args, **options)
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = self.head(x + self.grid[: len(x)])
        return loss


def test_tensors_that_a_model_moves_itself_lie_on_the_device() -> None:
    recorded = trace(source(Gridded, lambda size: torch.randn(size, WIDTH)), GPU, batch_size=4)
    freed = {event.storage for event in recorded.events if event.action == "free"}
    held = [each for each in recorded.storages if each.id not in freed and each.place == "device"]
    assert {ROWS * WIDTH * 4, (ROWS + 1) * WIDTH * 4} <= {each.nbytes for each in held}
    assert [each.name for each in held if each.role == "parameter"] == ["head.layer.weight", "head.layer.bias"]
    assert not any("CUDA would refuse" in sentence for sentence in recorded.assumptions)


def test_a_cast_reaches_them_too() -> None:
    dtypes = []

    class Asking(Gridded):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            dtypes.append((self.grid.dtype, self.head.anchors.dtype))
            return super().forward(x)

    trace(source(Asking, lambda size: torch.randn(size, WIDTH)), batch_size=4, precision="bf16")
    assert set(dtypes) == {(torch.bfloat16, torch.bfloat16)}
