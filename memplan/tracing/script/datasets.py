"""Data sets that are not there: the right shapes and classes, black pictures, no files."""

from collections.abc import Callable
from contextlib import ExitStack
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch

from memplan.seam.modes import disable_current_modes


class Pictures(NamedTuple):
    """A data set of pictures, by its own page."""

    size: tuple[int, int]
    """Width and height."""
    mode: str
    """PIL's: ``L`` is grey, ``RGB`` coloured."""
    classes: int
    """Labels."""
    samples: int
    """Samples for training."""


KNOWN = {
    "MNIST": Pictures((28, 28), "L", 10, 60_000),
    "FashionMNIST": Pictures((28, 28), "L", 10, 60_000),
    "KMNIST": Pictures((28, 28), "L", 10, 60_000),
    "EMNIST": Pictures((28, 28), "L", 47, 112_800),
    "CIFAR10": Pictures((32, 32), "RGB", 10, 50_000),
    "CIFAR100": Pictures((32, 32), "RGB", 100, 50_000),
    "SVHN": Pictures((32, 32), "RGB", 10, 73_257),
    "STL10": Pictures((96, 96), "RGB", 10, 5_000),
    "ImageFolder": Pictures((500, 375), "RGB", 1000, 1_281_167),
    "ImageNet": Pictures((500, 375), "RGB", 1000, 1_281_167),
    "CelebA": Pictures((178, 218), "RGB", 10_177, 162_770),
}
"""torchvision's class → what its documentation says (docs.pytorch.org/vision, "Datasets"); a folder of pictures is
taken for ImageNet's training set, whose pictures have 500 x 375 on average."""


def torchvision_datasets(module: ModuleType, stack: ExitStack, assume: Callable[[str], None]) -> None:
    """Let data sets that cannot be read from disk be made of black pictures."""
    for name, known in KNOWN.items():
        if hasattr(module, name):
            stack.enter_context(mock.patch.object(module, name, _stand_in(name, getattr(module, name), known, assume)))


def no_pictures(module: ModuleType, stack: ExitStack, assume: Callable[[str], None]) -> None:
    """Let pictures be saved to nowhere."""

    def save_image(*_: Any, **__: Any) -> None:
        assume("save_image() writes nothing")

    stack.enter_context(mock.patch.object(module, "save_image", save_image))


def _stand_in(name: str, real: Any, known: Pictures, assume: Callable[[str], None]) -> type:
    class StandIn(torch.utils.data.Dataset[Any]):
        """Looks like the real data set, which is read where it is there."""

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            try:
                return real(*args, **{**kwargs, "download": False} if "download" in kwargs else kwargs)
            except (RuntimeError, OSError, ModuleNotFoundError):
                assume(f"{name} is not there: {known.samples:,} black {known.mode} pictures of "
                       f"{known.size[0]} x {known.size[1]} stand in for it")  # fmt: skip
                return super().__new__(cls)

        def __init__(
            self, *_: Any, transform: Any = None, target_transform: Any = None, transforms: Any = None, **__: Any
        ) -> None:
            self.transform, self.target_transform, self.transforms = transform, target_transform, transforms
            self.classes = [str(label) for label in range(known.classes)]
            self.class_to_idx = {label: index for index, label in enumerate(self.classes)}
            with disable_current_modes():
                # In NumPy's memory, as torchvision reads them: torch's allocator has no part in it.
                labels = torch.from_numpy(np.arange(known.samples) % known.classes)
            self.targets = labels if name.endswith("MNIST") else labels.tolist()
            self.samples = self.imgs = _Repeated(("picture", 0), known.samples)
            self.loader = lambda _: _black(known)

        @property
        def data(self) -> torch.Tensor:
            """All pictures, which are one."""
            colours = (3,) if known.mode == "RGB" else ()
            return torch.zeros(1, *known.size[::-1], *colours, dtype=torch.uint8).expand(
                known.samples, *[-1] * (2 + len(colours))
            )

        def __len__(self) -> int:
            return known.samples

        def __getitem__(self, index: int) -> tuple[Any, Any]:
            if not 0 <= index < known.samples:
                raise IndexError(index)
            picture, label = _black(known), index % known.classes
            if self.transforms is not None:
                return self.transforms(picture, label)  # type: ignore[no-any-return]
            return (
                self.transform(picture) if self.transform else picture,
                self.target_transform(label) if self.target_transform else label,
            )

    StandIn.__name__ = StandIn.__qualname__ = name
    return StandIn


class _Repeated(list[Any]):
    """A list of one element shown many times."""

    def __init__(self, element: Any, count: int) -> None:
        super().__init__([element])
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(0) if isinstance(index, int) else [super().__getitem__(0)] * self._count


def _black(known: Pictures) -> Any:
    from PIL import Image

    return Image.new(known.mode, known.size)
