"""Where kernels on the CPU lay their results out otherwise than fake tensors say: the next op copies them, or does not.

Fake tensors run torch's decompositions (torch/_decomp, torch/_refs), whose results often lie like another operand than
those of the kernels (aten/src/ATen/native: Loss.cpp, Activation.cpp, BinaryOps.cpp, Distributions.cpp, SoftMax.cpp,
ReflectionPad.cpp, ReplicationPadding.cpp, MaxUnpooling.cpp, TensorTransformations.cpp, GatedLinearUnit.cpp,
UnaryOps.cpp, layer_norm.cpp, group_norm.cpp).
Found by running every op of torch 2.13.0 on operands of several layouts beside its fake kernel, November 2026.
"""

from collections.abc import Callable
from typing import Any

import torch

from memplan.seam.dispatcher import Kernel
from memplan.tracing.expanded import as_iterated
from memplan.tracing.loss_results import LOSSES, as_it_lies, row_major
from memplan.tracing.scratch.layouts import memory_format


def _as_images_lie(position: int) -> Kernel:
    """A result like the operand at a position, channels-last if that is."""
    return lambda *args, **_: torch.empty_like(args[position], memory_format=memory_format(args[position]))


def _like(combine: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], second: int = 1) -> Kernel:
    """A result of the type and layout that ``combine`` makes of the first operand and that at a position."""

    def kernel(*args: Any, **_: Any) -> torch.Tensor:
        operands = args[0], args[second]
        return as_iterated(combine(*operands), [each for each in operands if isinstance(each, torch.Tensor)])

    return kernel


def _log_sigmoid(source: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    result, buffer = (torch.empty_like(source, memory_format=torch.contiguous_format) for _ in range(2))
    return result, buffer


def _power(base: complex, exponent: torch.Tensor) -> torch.Tensor:
    kind = torch.result_type(base, exponent)
    return torch.empty_like(exponent, dtype=kind, memory_format=torch.contiguous_format)


def _angle(source: torch.Tensor) -> torch.Tensor:
    """Numbers lie as before; those of complex ones are copied out of a complex result, into one that is row-major.

    UnaryOps.cpp ``unary_op_impl_with_complex_to_float_out``.
    """
    if source.is_complex():
        return torch.empty(source.shape, dtype=source.real.dtype)
    return torch.empty_like(source, dtype=source.dtype if source.is_floating_point() else torch.get_default_dtype())


def _layer_norm_backward(gradient: torch.Tensor, source: torch.Tensor, *rest: Any) -> tuple[torch.Tensor | None, ...]:
    """A row-major gradient of the source, whatever lies turned around."""
    del gradient
    *_, weight, bias, mask = rest
    made = torch.empty_like(source, memory_format=torch.contiguous_format) if mask[0] else None
    of_weight, of_bias = (
        torch.empty_like(each) if asked else None for each, asked in zip((weight, bias), mask[1:], strict=True)
    )
    return made, of_weight, of_bias


def _group_norm_backward(gradient: torch.Tensor, source: torch.Tensor, *rest: Any) -> tuple[torch.Tensor | None, ...]:
    """A gradient that lies as the images do."""
    del gradient
    channels, mask = rest[4], rest[-1]
    kind = source.dtype if rest[2] is None else rest[2].dtype
    made = torch.empty_like(source, memory_format=memory_format(source)) if mask[0] else None
    return made, *(source.new_empty(channels, dtype=kind) if asked else None for asked in mask[1:])


def _padded(dimensions: int) -> Kernel:
    """A padded image or volume: channels-last if a batch of them is (fake kernels before torch 2.13 forget it)."""

    def kernel(source: torch.Tensor, padding: Any) -> torch.Tensor:
        around = [padding[2 * index] + padding[2 * index + 1] for index in reversed(range(dimensions))]
        sides = [side + more for side, more in zip(source.shape[-dimensions:], around, strict=True)]
        layout = memory_format(source) if source.ndim == dimensions + 2 else torch.contiguous_format
        return source.new_empty((*source.shape[:-dimensions], *sides)).contiguous(memory_format=layout)

    return kernel


def _unpooled(source: torch.Tensor, _: torch.Tensor, sides: Any) -> torch.Tensor:
    """The image that was pooled: channels-last if what is left of it is."""
    return source.new_empty((*source.shape[:-2], *sides)).contiguous(memory_format=memory_format(source))


def _rolled(source: torch.Tensor, _: Any, dims: Any = ()) -> torch.Tensor:
    """Two parts joined the other way round (``cat``); without dimensions, of the elements in a row."""
    return torch.empty_like(source, memory_format=memory_format(source) if dims else torch.contiguous_format)


_PADDINGS = ("reflection_pad2d", "reflection_pad3d", "replication_pad2d", "replication_pad3d")

LAYOUTS: dict[str, Kernel] = {
    "channel_shuffle": _as_images_lie(0),
    "max_unpool2d": _unpooled,
    "roll": _rolled,
    "rrelu_with_noise": row_major(0),
    "glu_backward": row_major(1),
    "log_sigmoid_backward": as_it_lies(0),
    **LOSSES,
    **dict.fromkeys(("_log_softmax_backward_data", "poisson", "_standard_gamma"), row_major(0)),
    "normal.float_Tensor": row_major(1),
    "binary_cross_entropy_backward": as_it_lies(1),
    "log_sigmoid_forward": _log_sigmoid,
    "angle": _angle,
    "native_layer_norm_backward": _layer_norm_backward,
    "native_group_norm_backward": _group_norm_backward,
    "pow.Scalar": _power,
    **dict.fromkeys(("copysign.Tensor", "special_xlog1py", "xlogy.Tensor"), _like(torch.true_divide)),
    **dict.fromkeys(
        (
            "floor_divide",
            "hardsigmoid_backward",
            "hardswish_backward",
            "hardtanh_backward",
            "logit_backward",
            "native_dropout_backward",
            "softplus_backward",
        ),
        _like(torch.add),
    ),
    "elu_backward": _like(torch.add, second=5),
    **{f"{name}_backward": _as_images_lie(1) for name in _PADDINGS},
    **{name: _padded(int(name[-2])) for name in _PADDINGS},
}
"""Op → its result as the kernel lays it out."""
