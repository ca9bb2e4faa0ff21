"""Pictures that stand in for data sets: what a program's transforms make of them."""

from contextlib import ExitStack

import numpy as np
import pytest
import torch
from PIL import Image

from memplan.tracing.script.datasets import torchvision_datasets

torchvision = pytest.importorskip("torchvision")
MANY = 40


def samples(transform, count=MANY):
    """Samples of the first pictures, and how often the transform ran."""
    calls = 0

    def counted(picture):
        nonlocal calls
        calls += 1
        return transform(picture)

    with ExitStack() as stack:
        torchvision_datasets(torchvision.datasets, stack, lambda _: None)
        data = torchvision.datasets.CIFAR10("nowhere", transform=counted)
        return [data[index] for index in range(count)], calls


@pytest.fixture
def played():
    """torchvision's data sets, none of which is there."""
    with ExitStack() as stack:
        torchvision_datasets(torchvision.datasets, stack, lambda _: None)
        yield torchvision.datasets


def test_pictures_vary_as_statistics_of_them_want(played) -> None:
    data = played.CIFAR10("nowhere", transform=torchvision.transforms.ToTensor())
    assert (data[0][0].std(dim=[1, 2]) > 0).all()


def test_a_class_of_its_own_chooses_among_the_samples(played) -> None:
    class Chosen(played.CIFAR10):
        def __init__(self, root, indices, train=True, transform=None) -> None:
            super().__init__(root, train, transform)
            self.data = self.data[indices]
            self.targets = np.array(self.targets)[indices]

        def __getitem__(self, index):
            return self.transform(Image.fromarray(self.data[index])), self.targets[index]

        def __len__(self) -> int:
            return len(self.data)

    chosen = Chosen("nowhere", np.arange(5), transform=torchvision.transforms.ToTensor())
    assert (len(chosen), chosen[4][0].shape, chosen[4][1]) == (5, (3, 32, 32), 4)


def test_a_class_of_its_own_reads_what_is_on_the_disk(tmp_path, played) -> None:
    for label in "ab":
        (tmp_path / label).mkdir()
        Image.new("RGB", (8, 6)).save(tmp_path / label / "one.png")

    class Named(played.ImageFolder):
        def __getitem__(self, index):
            return *super().__getitem__(index), self.imgs[index][0]

    [*_, (picture, label, path)] = Named(str(tmp_path))[0], Named(str(tmp_path))[1]
    assert (picture.size, label, path) == ((8, 6), 1, str(tmp_path / "b" / "one.png"))


@pytest.mark.parametrize(("name", "kind", "shape"), [
    ("MNIST", torch.Tensor, (60_000, 28, 28)), ("CIFAR10", np.ndarray, (50_000, 32, 32, 3)),
    ("SVHN", np.ndarray, (73_257, 3, 32, 32)), ("STL10", np.ndarray, (5_000, 3, 96, 96)),
])  # fmt: skip
def test_all_pictures_are_as_the_class_keeps_them(name, kind, shape, played) -> None:
    data = getattr(played, name)("nowhere").data
    assert isinstance(data, kind)
    assert data.shape == shape


def test_names_of_older_releases_are_those_of_the_class(played) -> None:
    data = played.MNIST("nowhere", train=False)
    with pytest.warns(UserWarning, match="renamed"):
        labels = data.test_labels
    with pytest.warns(UserWarning, match="renamed"):
        pictures = data.train_data
    assert (len(labels), pictures.shape) == (10_000, (10_000, 28, 28))
    with pytest.raises(AttributeError, match="'CIFAR10' object has no attribute 'train_data'"):
        _ = played.CIFAR10("nowhere").train_data


@pytest.mark.parametrize(
    ("name", "asked", "count"),
    [("MNIST", {"train": False}, 10_000), ("CIFAR10", {"train": True}, 50_000), ("SVHN", {"split": "test"}, 26_032)],
)
def test_a_set_to_test_with_is_as_long_as_the_real_one(name, asked, count, played) -> None:
    data = getattr(played, name)("nowhere", **asked)
    assert (len(data), len(data.data), len(data.samples)) == (count,) * 3
    with pytest.raises(IndexError):
        data[count]


@pytest.mark.parametrize(
    ("name", "asked"), [("VOCSegmentation", {}), ("OxfordIIITPet", {"target_types": "segmentation"})]
)
def test_masks_of_classes_are_as_large_as_their_pictures(name, asked, played) -> None:
    picture, mask = getattr(played, name)("nowhere", **asked)[0]
    assert mask.size == picture.size
    assert len(mask.getcolors()) == len(getattr(played, name)("nowhere", **asked).classes)


def test_a_picture_is_drawn_once_and_handed_out_as_ones_own(played, monkeypatch) -> None:
    data = played.SVHN("nowhere")
    data[0][0].putpixel((0, 0), (255, 0, 0))
    monkeypatch.setattr(Image, "linear_gradient", None)
    assert data[1][0].getpixel((0, 0)) != (255, 0, 0)


def test_samples_that_are_alike_are_repeated() -> None:
    crops = torchvision.transforms.Compose([torchvision.transforms.ToTensor(), lambda x: [x, {"small": x[:, ::2]}]])
    made, calls = samples(crops)
    assert calls < MANY
    assert [label for _, label in made] == [index % 10 for index in range(MANY)]
    for (whole, parts), _ in made:
        assert (whole.shape, parts["small"].shape) == ((3, 32, 32), (3, 16, 32))
    storages = {whole.untyped_storage().data_ptr() for (whole, _), _ in made}
    assert len(storages) == MANY


@pytest.mark.parametrize(
    "transform",
    [
        lambda picture: picture,
        lambda picture: (torch.zeros(3, 32, 32), picture),
        lambda _: torch.zeros(3, 32 + torch.randint(8, ()).item()),
        lambda _: [torch.zeros(3)] * (1 + torch.randint(3, ()).item()),
    ],
)
def test_samples_that_differ_are_all_made(transform) -> None:
    torch.manual_seed(0)
    made, calls = samples(transform)
    assert calls == len(made) == MANY
