"""Data sets that are not there: the right shapes and classes, pictures of shades, no files."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cache, cached_property, partial
from inspect import getattr_static, signature
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch

from memplan.seam.modes import disable_current_modes
from memplan.seam.pytree import tree_flatten, tree_unflatten

_SAMPLES = 16
"""Samples that a transform makes alike before they are repeated. Chosen: a size or a number that it draws differs by
then."""


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
    held_out: int
    """Samples to test with."""


KNOWN = {
    "MNIST": Pictures((28, 28), "L", 10, 60_000, 10_000),
    "FashionMNIST": Pictures((28, 28), "L", 10, 60_000, 10_000),
    "KMNIST": Pictures((28, 28), "L", 10, 60_000, 10_000),
    "EMNIST": Pictures((28, 28), "L", 47, 112_800, 18_800),
    "CIFAR10": Pictures((32, 32), "RGB", 10, 50_000, 10_000),
    "CIFAR100": Pictures((32, 32), "RGB", 100, 50_000, 10_000),
    "SVHN": Pictures((32, 32), "RGB", 10, 73_257, 26_032),
    "STL10": Pictures((96, 96), "RGB", 10, 5_000, 8_000),
    "ImageFolder": Pictures((500, 375), "RGB", 1000, 1_281_167, 50_000),
    "ImageNet": Pictures((500, 375), "RGB", 1000, 1_281_167, 50_000),
    "CelebA": Pictures((178, 218), "RGB", 10_177, 162_770, 19_962),
    "Flowers102": Pictures((667, 500), "RGB", 102, 1_020, 6_149),
    "Food101": Pictures((512, 512), "RGB", 101, 75_750, 25_250),
    "OxfordIIITPet": Pictures((500, 375), "RGB", 37, 3_680, 3_669),
    "VOCSegmentation": Pictures((500, 375), "RGB", 21, 1_464, 1_449),
}
"""torchvision's class → what its documentation says (docs.pytorch.org/vision, "Datasets"), or the page that it names; a
folder of pictures is taken for ImageNet's training set, whose pictures have 500 x 375 on average."""


def torchvision_datasets(module: ModuleType, stack: ExitStack, assume: Callable[[str], None]) -> None:
    """Let data sets that cannot be read from disk be made of pictures that are alike."""
    for name, known in KNOWN.items():
        if hasattr(module, name):
            stack.enter_context(mock.patch.object(module, name, _stand_in(name, getattr(module, name), known, assume)))


def no_pictures(module: ModuleType, stack: ExitStack, assume: Callable[[str], None]) -> None:
    """Let pictures be saved to nowhere."""

    def save_image(*_: Any, **__: Any) -> None:
        assume("save_image() writes nothing")

    stack.enter_context(mock.patch.object(module, "save_image", save_image))


def _stand_in(name: str, real: Any, known: Pictures, assume: Callable[[str], None]) -> type:
    on_disk = partial(_on_disk, name, real, known, assume)

    class StandIn(torch.utils.data.Dataset[Any]):
        """Looks like the real data set, which is read where it is there."""

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            if cls is not StandIn:
                # One of the program's own: what it hands on comes with ``__init__``.
                return super().__new__(cls)
            there = on_disk(*args, **kwargs)
            return super().__new__(cls) if there is None else there

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._is_on_disk = False
            if type(self) is not StandIn and (there := on_disk(*args, **kwargs)) is not None:
                vars(self).update(vars(there), _is_on_disk=True)
            else:
                given = signature(real).bind_partial(*args, **kwargs).arguments
                self._play(**given | given.pop("kwargs", {}))

        def _play(
            self, *, transform: Any = None, target_transform: Any = None, transforms: Any = None, **chosen: Any
        ) -> None:
            self.transform, self.target_transform, self.transforms = transform, target_transform, transforms
            self._pictures = known._replace(samples=known.held_out) if _is_held_out(chosen) else known
            self._is_mask = name == "VOCSegmentation" or chosen.get("target_types") == "segmentation"
            self.classes = [str(label) for label in range(known.classes)]
            self.class_to_idx = {label: index for index, label in enumerate(self.classes)}
            with disable_current_modes():
                # In NumPy's memory, as torchvision reads them: torch's allocator has no part in it.
                labels = torch.from_numpy(np.arange(len(self)) % known.classes)
            self.targets = labels if name.endswith("MNIST") else labels.tolist()
            self.samples = self.imgs = _Repeated(("picture", 0), len(self))
            self.loader = lambda _: _picture(known)
            self._made = _Made(transform)

        @cached_property
        def data(self) -> Any:
            """All pictures."""
            return _pixels(name, self._pictures)

        __getattr__ = _worked_out(real)

        def __len__(self) -> int:
            return int(real.__len__(self)) if self._is_on_disk else self._pictures.samples

        def __getitem__(self, index: int) -> tuple[Any, Any]:
            if self._is_on_disk:
                return real.__getitem__(self, index)  # type: ignore[no-any-return]
            return _sample(self, self._pictures, index)

    StandIn.__name__ = StandIn.__qualname__ = name
    return StandIn


def _on_disk(name: str, real: Any, known: Pictures, assume: Callable[[str], None], *args: Any, **kwargs: Any) -> Any:
    """The real data set, read from this disk; None where it is not there, which is told."""
    try:
        return real(*args, **{**kwargs, "download": False} if "download" in kwargs else kwargs)
    except (RuntimeError, OSError, ModuleNotFoundError):
        assume(f"{name} is not there: {known.samples:,} {known.mode} pictures of "
               f"{known.size[0]} x {known.size[1]} stand in for it")  # fmt: skip
        return None


def _worked_out(real: Any) -> Callable[[Any, str], Any]:
    """What a class makes of the rest of itself, as MNIST does under the names of older releases."""

    def ask(data: Any, asked: str) -> Any:
        found = getattr_static(real, asked, None)
        if isinstance(found, property):
            return found.__get__(data)
        raise AttributeError(f"'{real.__name__}' object has no attribute '{asked}'")

    return ask


def _pixels(name: str, known: Pictures) -> Any:
    """All pictures as the class keeps them; memory that nobody writes to is not taken."""
    if name.endswith("MNIST"):
        return torch.zeros(1, *known.size[::-1], dtype=torch.uint8).expand(known.samples, -1, -1)
    shape = (3, *known.size[::-1]) if name in ("SVHN", "STL10") else (*known.size[::-1], 3)
    return np.zeros((known.samples, *shape), dtype=np.uint8)


def _is_held_out(chosen: Mapping[str, Any]) -> bool:
    """Do a data set's arguments ask for what models are tested with?"""
    part = chosen.get("split", chosen.get("image_set"))
    return chosen.get("train") is False or part in {"test", "val", "valid"}


def _sample(data: Any, known: Pictures, index: int) -> tuple[Any, Any]:
    """What a stand-in makes of one of its pictures."""
    if not 0 <= index < known.samples:
        raise IndexError(index)
    label = (
        _picture(known._replace(mode="L")).point(lambda x: x % known.classes)
        if data._is_mask
        else index % known.classes
    )
    if data.transforms is not None:
        return data.transforms(_picture(known), label)  # type: ignore[no-any-return]
    return (
        data._made(known) if data.transform else _picture(known),
        data.target_transform(label) if data.target_transform else label,
    )


class _Made:
    """What a transform makes of pictures that are alike: the same again, once it has made as many alike as will do.

    Crops and blurs of large pictures take most of a trace. The same samples are repeated in a real run beside it.
    """

    def __init__(self, transform: Callable[[Any], Any]) -> None:
        self._transform = transform
        self._samples: list[tuple[list[Any], Any]] = []
        """Arrays, which no allocator of torch counts, and what they are in."""
        self._repeats, self._next = True, 0

    def __call__(self, known: Pictures) -> Any:
        if self._repeats and len(self._samples) == _SAMPLES:
            arrays, structure = self._samples[self._next % _SAMPLES]
            self._next += 1
            return tree_unflatten([torch.from_numpy(array).clone() for array in arrays], structure)
        sample = self._transform(_picture(known))
        if self._repeats:
            self._repeats = self._keep(sample)
        return sample

    def _keep(self, sample: Any) -> bool:
        """Remember a sample; is it like those before, and made of plain tensors?"""
        leaves, structure = tree_flatten(sample)
        if any(type(leaf) is not torch.Tensor or leaf.dtype is torch.bfloat16 for leaf in leaves):
            return False
        arrays = [np.array(leaf.numpy()) for leaf in leaves]
        first, as_first = self._samples[0] if self._samples else (arrays, structure)
        self._samples.append((arrays, structure))
        alike = [(array.shape, array.dtype) for array in arrays] == [(array.shape, array.dtype) for array in first]
        return alike and structure == as_first


class _Repeated(list[Any]):
    """A list of one element shown many times."""

    def __init__(self, element: Any, count: int) -> None:
        super().__init__([element])
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(0) if isinstance(index, int) else [super().__getitem__(0)] * self._count


def _picture(known: Pictures) -> Any:
    """One of its own: a program may draw on it."""
    return _shades(known.size, known.mode).copy()


@cache
def _shades(size: tuple[int, int], mode: str) -> Any:
    """From black to white: who divides by the deviation of all pixels must find one."""
    from PIL import Image

    return Image.linear_gradient("L").resize(size).convert(mode)
