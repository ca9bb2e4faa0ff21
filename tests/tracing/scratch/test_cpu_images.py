"""Images and volumes in several memory formats on the CPU: what pools, paddings and convolutions copy."""

import math
from itertools import product

import pytest
import torch

from tests.tracing.test_cpu_scratch import avx2_machine, compare

aten = torch.ops.aten
LAST = {2: torch.channels_last, 3: torch.channels_last_3d}
pytestmark = [
    pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="measured on torch 2.13"),
    pytest.mark.usefixtures("one_thread"),
]


def _inside(shape, step):
    """Strides of images whose channels lie innermost, so many elements apart."""
    strides, least = [0] * len(shape), step
    for dim in (1, *range(len(shape) - 1, 1, -1), 0):
        strides[dim], least = least, least * shape[dim]
    return strides


LAYOUTS = {
    "every other, channels last": lambda shape: torch.rand(2 * shape[0] * shape[1] * math.prod(shape[2:])).as_strided(
        shape, _inside(shape, 2)
    ),
    "row-major": torch.rand,
    "channels last": lambda shape: torch.rand(shape).contiguous(memory_format=LAST[len(shape) - 2]),
    "turned": lambda shape: torch.rand(*shape[:-2], shape[-1], shape[-2]).transpose(-1, -2),
}


def indices(dimensions, layout):
    pool = getattr(aten, f"max_pool{dimensions}d_with_indices").default
    found = pool(torch.rand(2, 8, *[8] * dimensions), [2] * dimensions, [2] * dimensions)[1]
    return found.contiguous(memory_format=torch.contiguous_format if layout == "row-major" else LAST[dimensions])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dimensions", [2, 3])
def test_sources_are_copied_to_a_format(dimensions, layout):
    source = LAYOUTS[layout]((2, 8, *[8] * dimensions))
    windows = [[2] * dimensions] * 2
    for name in ("max_pool{}d_with_indices", "avg_pool{}d"):
        compare(getattr(aten, name.format(dimensions)).default, source, *windows)
    if dimensions == 2:
        # Those of volumes copy nothing.
        compare(aten.adaptive_max_pool2d.default, source, [4, 4])
        compare(aten._adaptive_avg_pool2d.default, source, [4, 4])
    for name in ("reflection_pad{}d", "replication_pad{}d"):
        compare(getattr(aten, name.format(dimensions)).default, source, [1] * 2 * dimensions)


@pytest.mark.parametrize("layouts", list(product(LAYOUTS, repeat=2)), ids=" of ".join)
@pytest.mark.parametrize("dimensions", [2, 3])
def test_gradients_of_pools_are_brought_to_one_format(dimensions, layouts):
    gradient = LAYOUTS[layouts[0]]((2, 8, *[4] * dimensions))
    source = LAYOUTS[layouts[1]]((2, 8, *[8] * dimensions))
    windows = [[2] * dimensions, [2] * dimensions, [0] * dimensions]
    for of_indices in ("row-major", "channels last"):
        last = indices(dimensions, of_indices)
        most = getattr(aten, f"max_pool{dimensions}d_with_indices_backward").default
        compare(most, gradient, source, *windows, [1] * dimensions, False, last)
        compare(getattr(aten, f"adaptive_max_pool{dimensions}d_backward").default, gradient, source, last)
    compare(getattr(aten, f"avg_pool{dimensions}d_backward").default, gradient, source, *windows, False, True, None)
    compare(getattr(aten, f"_adaptive_avg_pool{dimensions}d_backward").default, gradient, source)


CONVOLUTIONS = {
    "wide": (2, 4, 16, 32, 3),
    "three channels": (2, 4, 3, 16, 3),
    "odd channels": (2, 2, 20, 12, 3),
    "grouped": (2, 4, 16, 16, 3, {"groups": 2}),
    "depthwise": (2, 4, 16, 16, 3, {"groups": 16}),
    "dilated": (2, 2, 16, 24, 3, {"dilation": 2}),
    "strided": (2, 4, 16, 32, 3, {"stride": 2}),
    "pointwise, by PyTorch": (2, 4, 16, 16, 1),
    "pointwise": (2, 16, 16, 16, 1),
    "pointwise, strided": (2, 16, 16, 16, 1, {"stride": 2}),
    "transposed": (2, 2, 16, 24, 3, {"transposed": True}),
    "doubles": (2, 4, 8, 16, 3, {"dtype": torch.float64}),
    "one image, by PyTorch": (2, 1, 8, 16, 3),
    "volumes": (3, 2, 16, 16, 3),
    "volumes of three channels": (3, 2, 3, 8, 3),
    "volumes, grouped": (3, 2, 8, 8, 3, {"groups": 2}),
    "volumes, strided": (3, 2, 8, 16, 3, {"stride": 2}),
    "volumes, doubles": (3, 2, 8, 16, 3, {"dtype": torch.float64}),
}


def convolution(dims, batch, inputs, outputs, kernel, kind):
    groups, transposed, dtype = (
        kind.get(key, other) for key, other in (("groups", 1), ("transposed", False), ("dtype", torch.float32))
    )
    padding = kind.get("dilation", 1) * (kernel // 2)
    source = torch.randn(batch, inputs, *[{2: 20, 3: 8}[dims]] * dims, dtype=dtype).contiguous(memory_format=LAST[dims])
    first, second = (inputs, outputs // groups) if transposed else (outputs, inputs // groups)
    weight = torch.randn(first, second, *[kernel] * dims, dtype=dtype)
    pairs = ([kind.get("stride", 1)] * dims, [padding] * dims, [kind.get("dilation", 1)] * dims)
    return source, weight, torch.randn(outputs, dtype=dtype), *pairs, transposed, [0] * dims, groups


@avx2_machine
@pytest.mark.parametrize("layout", ["row-major", "channels last"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_channels_last_images_stay_as_they_lie(name, layout):
    dims, *sizes = CONVOLUTIONS[name]
    kind = sizes[4] if len(sizes) > 4 else {}
    source, weight, bias, *rest = convolution(dims, *sizes[:4], kind)
    compare(aten.convolution.default, source, weight, bias, *rest)
    result = aten.convolution(source, weight, bias, *rest)
    gradient = LAYOUTS[layout](result.shape).to(result.dtype)
    compare(aten.convolution_backward.default, gradient, source, weight, [len(bias)], *rest, [True] * 3, slack=64)


GROUPS = [(2, 2, 8), (2, 3, 4), (2, 8, 4), (2, 12, 4), (3, 2, 4), (4, 12, 16)]
"""How many, channels of each that arrive and leave."""


@avx2_machine
@pytest.mark.parametrize(("groups", "entering", "leaving"), GROUPS)
@pytest.mark.parametrize(("dims", "size"), [(2, 12), (2, 9), (3, 8)])
@pytest.mark.parametrize(("kernel", "stride"), [(1, 2), (3, 1), (3, 2), (5, 2), (5, 3)])
def test_groups_of_channels_last_images_have_kernels_by_width(dims, size, groups, entering, leaving, kernel, stride):
    source = torch.randn(2, groups * entering, *[size] * dims).contiguous(memory_format=LAST[dims])
    weight, bias = torch.randn(groups * leaving, entering, *[kernel] * dims), torch.randn(groups * leaving)
    rest = ([stride] * dims, [kernel // 2] * dims, [1] * dims, False, [0] * dims, groups)
    compare(aten.convolution.default, source, weight, bias, *rest)
    gradient = torch.randn_like(aten.convolution(source, weight, bias, *rest))
    for mask in ([True] * 3, [True, False, False], [False, True, True]):
        compare(aten.convolution_backward.default, gradient, source, weight, [len(bias)], *rest, mask, slack=64)


@avx2_machine
@pytest.mark.parametrize(("groups", "entering", "leaving"), [(1, 2, 4), (1, 12, 20), (2, 2, 4), (2, 8, 8), (2, 12, 8)])
@pytest.mark.parametrize(("kernel", "padding"), [(2, 0), (4, 1), (3, 1)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_strided_transposed_channels_last_images_are_gradients_and_then_a_bias(
    groups, entering, leaving, kernel, padding, has_bias
):
    source = torch.randn(4, groups * entering, 12, 12).contiguous(memory_format=torch.channels_last)
    weight = torch.randn(groups * entering, leaving, kernel, kernel).contiguous(memory_format=torch.channels_last)
    bias = torch.randn(groups * leaving) if has_bias else None
    compare(aten.convolution.default, source, weight, bias, [2, 2], [padding] * 2, [1, 1], True, [0, 0], groups)


@pytest.mark.parametrize("lies", ["source", "weight"])
def test_a_gradient_is_copied_for_each_pass_of_a_half_typed_convolution(lies):
    # Where no kernel of oneDNN knows the type, PyTorch's own does.
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("oneDNN computes in bfloat16 here")
    source, weight, bias, *rest = convolution(2, 4, 8, 16, 3, {"dtype": torch.bfloat16})
    if lies == "weight":
        source, weight = source.contiguous(), weight.contiguous(memory_format=torch.channels_last)
    gradient = torch.randn(aten.convolution(source, weight, bias, *rest).shape, dtype=torch.bfloat16)
    compare(aten.convolution_backward.default, gradient, source, weight, [16], *rest, [True] * 3)
