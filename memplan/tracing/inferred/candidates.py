"""What a layer takes, as inputs that may be tried: tokens, pictures, signals, features."""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from memplan.job.spec import InputSpec
from memplan.tracing.inferred.trial import LAYERS

Dims = tuple[Any, ...]
Make = Callable[[Any, "Facts"], Iterator[tuple[str, Dims]]]

IMAGE_SIZES = (224, 32, 28, 256, 64, 299, 227, 128, 96, 84, 48, 512, 384, 105, 16)
"""Sides of pictures, in the order in which they are tried: ImageNet's, CIFAR's, MNIST's, then what else papers use."""
VOLUMES = ((16, 112, 112), (16, 224, 224), (64, 64, 64), (32, 32, 32), (128, 128, 128))
"""Frames or slices, height and width: clips as video networks are published for, and cubes."""
LENGTHS = (2048, 1024, 512, 256, 128, 64, 32, 16, 8, 4, 2)
"""Tokens or samples, longest first: the first that the model takes."""
_MOST_TABLES = 4
_IMAGE_NAMES = ("image_size", "img_size", "imgsz", "input_size", "resolution", "input_resolution", "crop_size")
_LENGTH_NAMES = (
    "block_size", "max_seq_len", "max_position_embeddings", "n_positions", "n_ctx", "n_text_ctx", "context_length",
    "max_len", "max_length", "max_sequence_length", "seq_len", "seq_length", "sequence_length", "context_size",
)  # fmt: skip
_TOKENS = ("input_ids", "ids", "idx", "token", "src", "tgt", "text", "caption", "words")
_TIMES = ("t", "time", "times", "timestep", "timesteps", "noise_level", "sigma", "noise_labels")
_CLASSES = ("y", "label", "labels", "class_labels", "classes", "target", "targets")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Numbers that a model says of itself."""

    image_sizes: tuple[int, ...]
    """Sides of pictures, likeliest first."""
    lengths: tuple[int, ...]
    """Tokens of a sequence, likeliest first."""
    tables: tuple[int, ...]
    """Rows of tables that the model keeps beside its layers: positions."""


def facts_of(model: nn.Module, given: Mapping[str, Any], seq_len: int | None) -> Facts:
    """Read the sizes that a model was made with, from its constructor's arguments and what the user says."""
    places = [given, *(vars(each) for each in _records(model)), vars(model), *_defaults(model)]
    images = [side for place in places for name in _IMAGE_NAMES if (side := _side(place.get(name)))]
    contexts = [size for place in places for name in _LENGTH_NAMES if isinstance(size := place.get(name), int)]
    lengths = (seq_len,) if seq_len else (*(min(size, LENGTHS[0]) for size in contexts if size > 1), *LENGTHS)
    tables = {size for tensor in model.parameters() for size in tensor.shape}
    squares = [math.isqrt(size) for size in tables if math.isqrt(size) ** 2 == size and math.isqrt(size) >= 7]
    squares += [math.isqrt(size - 1) for size in tables if size > 49 and math.isqrt(size - 1) ** 2 == size - 1]
    patches = [conv.stride[0] for conv in model.modules() if isinstance(conv, nn.Conv2d) and conv.stride[0] > 3]
    grids = [grid * patch for patch in patches[:1] or [16] for grid in sorted(set(squares)) if grid < 100]
    return Facts(image_sizes=_once((*images, *IMAGE_SIZES, *grids)), lengths=_once(lengths), tables=_tables(model))


def inputs_for(name: str, layer: nn.Module | None, facts: Facts) -> Iterator[InputSpec]:
    """Inputs of a name whose first layer is known, or none, by what the model says of itself."""
    made = next((make(layer, facts) for kinds, make in _OF_LAYERS if isinstance(layer, kinds)), ())
    yield from (InputSpec(name=name, dtype=dtype, dims=dims) for dtype, dims in made)


def inputs_by_name(name: str, annotation: object) -> Iterator[InputSpec]:
    """Inputs that a name or annotation speaks of."""
    plain = name.lower()
    if plain in _TIMES:
        yield from (InputSpec(name=name, dtype=dtype, dims=("B",)) for dtype in ("int64", "float32"))
    elif "mask" in plain:
        yield from (
            InputSpec(name=name, dtype="bool", dims=dims) for dims in (("B", "S"), ("S", "S"), ("B", 1, "S", "S"))
        )
    elif any(part in plain for part in _TOKENS) or "Long" in str(annotation) or "Int" in str(annotation):
        yield InputSpec(name=name, dtype="int64", dims=("B", "S"))
    elif plain in _CLASSES:
        yield InputSpec(name=name, dtype="int64", dims=("B",))


def inputs_of_any_kind(name: str, facts: Facts) -> Iterator[InputSpec]:
    """What people call models with, where nothing says more."""
    side = facts.image_sizes[0]
    every: tuple[tuple[str, Dims], ...] = (
        ("float32", ("B", 3, side, side)), ("int64", ("B", "S")), ("float32", ("B", "S")), ("int64", ("B",)),
        ("float32", ("B",)), ("float32", ("B", 1, side, side)), ("bool", ("B", "S")), ("float32", ("B", 1)),
    )  # fmt: skip
    yield from (InputSpec(name=name, dtype=dtype, dims=dims) for dtype, dims in every)


def is_label(name: str) -> bool:
    """Is an optional input of that name what a model is taught?"""
    return name in {"target", "targets", "label", "labels"}


def _tokens(_: Any, __: Facts) -> Iterator[tuple[str, Dims]]:
    yield "int64", ("B", "S")
    yield "int64", ("B",)


def _pictures(layer: Any, facts: Facts) -> Iterator[tuple[str, Dims]]:
    yield from (("float32", ("B", _width(layer), side, side)) for side in facts.image_sizes)


def _signals(layer: Any, facts: Facts) -> Iterator[tuple[str, Dims]]:
    channels = _width(layer)
    yield "float32", ("B", channels, "S")
    # Spectrograms and waves, of which strided layers make so many positions.
    yield from (("float32", ("B", channels, rows * stride)) for rows in facts.tables for stride in (1, 2, 4))
    # A sequence of features, turned before the layer.
    yield "float32", ("B", "S", channels)


def _volumes(layer: Any, _: Facts) -> Iterator[tuple[str, Dims]]:
    yield from (("float32", ("B", _width(layer), *volume)) for volume in VOLUMES)


def _noise(layer: Any, _: Facts) -> Iterator[tuple[str, Dims]]:
    """What generators make pictures of: a point with many channels."""
    dims = len(layer.kernel_size)
    yield "float32", ("B", layer.in_channels, *[1] * dims)
    yield "float32", ("B", layer.in_channels)
    yield from (("float32", ("B", layer.in_channels, *[side] * dims)) for side in (4, 7, 8, 16, 32))


def _sequences(layer: Any, _: Facts) -> Iterator[tuple[str, Dims]]:
    yield "float32", ("B", "S", _width(layer)) if layer.batch_first else ("S", "B", _width(layer))


def _vectors(layer: Any, facts: Facts) -> Iterator[tuple[str, Dims]]:
    """Vectors, sequences of them, and pictures that were cut into patches or laid flat before."""
    features = _width(layer)
    yield "float32", ("B", features)
    yield "float32", ("B", "S", features)
    for channels in (3, 1, 4):
        side = math.isqrt(features // channels)
        if side > 1 and side**2 * channels == features:
            yield from (("float32", ("B", channels, image, image)) for image in facts.image_sizes if image % side == 0)
            yield "float32", ("B", channels, side, side)


def _channels(layer: Any, _: Facts) -> Iterator[tuple[str, Dims]]:
    yield "float32", ("B", _width(layer))
    yield "float32", ("B", _width(layer), "S")


_OF_LAYERS: tuple[tuple[tuple[type[nn.Module], ...], Make], ...] = (
    ((nn.Embedding, nn.EmbeddingBag), _tokens),
    ((nn.Conv2d, nn.BatchNorm2d), _pictures),
    ((nn.Conv1d,), _signals),
    ((nn.Conv3d, nn.BatchNorm3d), _volumes),
    ((nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), _noise),
    ((nn.RNNBase, nn.MultiheadAttention), _sequences),
    ((nn.Linear, nn.Bilinear, nn.LayerNorm, nn.RNNCellBase), _vectors),
    ((nn.BatchNorm1d, nn.GroupNorm), _channels),
)
_WIDTHS = ("in_channels", "num_features", "num_channels", "input_size", "embed_dim", "in_features", "in1_features")


def _width(layer: Any) -> int:
    """Channels or features that a layer takes."""
    sizes = (getattr(layer, name, None) for name in _WIDTHS)
    width: int = next((size for size in sizes if size is not None), None) or layer.normalized_shape[-1]
    return width


def _tables(model: nn.Module) -> tuple[int, ...]:
    others = [module for module in model.modules() if not isinstance(module, LAYERS)]
    kept = [each for module in others for each in (*module.parameters(recurse=False), *module.buffers(recurse=False))]
    return _once(size for tensor in kept for size in tensor.shape[:-1] if size >= LENGTHS[-3])[:_MOST_TABLES]


def _records(model: nn.Module) -> Iterator[Any]:
    """Configurations that a model keeps."""
    for name, value in vars(model).items():
        if not name.startswith("_") and hasattr(value, "__dict__") and not isinstance(value, nn.Module | type):
            yield value


def _defaults(model: nn.Module) -> Iterator[Mapping[str, Any]]:
    parameters = inspect.signature(type(model).__init__).parameters.values()
    yield {each.name: each.default for each in parameters if each.default is not each.empty}
    # Parts know what the whole has forgotten: a patch embedding its image size.
    yield from (vars(each) for each in model.modules())


def _side(value: object) -> int | None:
    if isinstance(value, list | tuple) and value:
        value = value[-1]
    return value if isinstance(value, int) and not isinstance(value, bool) and 4 <= value <= 4096 else None


def _once(values: Any) -> tuple[int, ...]:
    return tuple(dict.fromkeys(values))
