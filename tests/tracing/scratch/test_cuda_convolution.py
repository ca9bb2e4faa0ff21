"""cuDNN's work space as a range, and what PyTorch's convolution allocates around it; sizes worked out by hand."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from memplan.hardware.catalog import load_profile
from memplan.job.spec import JobSpec
from memplan.job.target import parse_target
from memplan.measure import answer
from memplan.measure.interval import ResidualTable
from memplan.measure.local import estimate_here
from memplan.measure.measurer import measure
from memplan.measure.records import Verdict
from memplan.tracing.records import DeviceTraits
from memplan.tracing.scratch.cuda_convolution_workspace import MEASURED, CudaConvolution, likely_bytes, most_bytes
from tests.tracing.scratch.calls import A100, H100, allocated, meta, script

BRAIN = torch.bfloat16
LAST = torch.channels_last
TILES = A100.sm_count * 256 * 128 * 4
"""One tile of partial sums per multiprocessor."""


def plain(source, weight, out, *, stride=1, padding=1, groups=1, transposed=False, device=A100):
    return script(
        "aten.convolution.default",
        source, weight, None, [stride] * 2, [padding] * 2, [1, 1], transposed, [0, 0], groups, out=out, device=device,
    )  # fmt: skip


def work(found):
    (line,) = [line for line in found.lines if line.most is not None]
    return line.nbytes, line.most


def test_half_images_are_likely_to_be_transposed_and_winograd_is_the_most():
    # 64 images of 256 x 56 x 56 keep their shape: two images' copies and one of the filters.
    x, w = meta(64, 256, 56, 56, dtype=BRAIN), meta(256, 256, 3, 3, dtype=BRAIN)
    # 14 x 14 tiles of 4 x 4 results per image, 36 floats for each of 512 channels, and of each filter.
    winograd = (512 * 64 * 196 + 256 * 256) * 36 * 4
    assert work(plain(x, w, x)) == (2 * 64 * 256 * 3136 * 2 + 256 * 256 * 9 * 2, winograd)


def test_floats_may_or_may_not_take_tensor_cores():
    x, w, y = meta(8, 64, 32, 32), meta(128, 64, 1, 1), meta(8, 128, 32, 32)
    copies = 4 * (8 * 64 * 1024 + 8 * 128 * 1024 + 128 * 64)
    assert work(plain(x, w, y, padding=0)) == (0, copies + TILES)


def test_channels_last_images_lie_as_tensor_cores_want_them_unless_channels_do_not_fill_vectors():
    w = meta(64, 64, 3, 3, dtype=BRAIN).to(memory_format=LAST)
    x = meta(2, 64, 8, 8, dtype=BRAIN).to(memory_format=LAST)
    assert work(plain(x, w, x))[0] == 0
    stem, w = (
        meta(2, 3, 8, 8, dtype=BRAIN).to(memory_format=LAST),
        meta(64, 3, 3, 3, dtype=BRAIN).to(memory_format=LAST),
    )
    # Three channels are padded to eight, in the image and in each filter.
    assert work(plain(stem, w, x))[0] == 2 * (2 * 8 * 64 + 64 * 8 * 9)


def test_an_h200_copied_images_in_channels_last_where_the_channels_of_the_others_do_not_fill_vectors():
    # 128 images of 8 x 256 x 256 floats lie well; those of the result have six channels.
    shared = {"batch": 128, "inputs": 8, "outputs": 6, "groups": 1, "source": (256, 256), "result": (129, 129)}
    given = CudaConvolution(**shared, kernel=(4, 4), dense=False, channels_last=True, dtype=torch.float32)
    assert most_bytes(given, H100) > 268_438_544
    for purpose, seen in (("source", 336_601_104), ("filters", 319_687_991)):
        assert most_bytes(dataclasses.replace(given, purpose=purpose), H100) > seen


def test_one_operand_in_channels_last_brings_the_other_along():
    x, w = meta(2, 64, 8, 8), meta(64, 64, 3, 3)
    filters, image = 64 * 64 * 9 * 4, 2 * 64 * 64 * 4
    assert allocated(plain(x.to(memory_format=LAST), w, x))[0] == filters
    assert allocated(plain(x, w.to(memory_format=LAST), x))[0] == image
    double = [tensor.to(torch.float64) for tensor in (x, w)]
    assert allocated(plain(double[0].to(memory_format=LAST), double[1], x.double()))[0] == 2 * image


def test_depthwise_rows_stay_with_a_kernel_that_takes_nothing():
    x, w = meta(2, 64, 8, 8), meta(64, 1, 3, 3)
    assert allocated(plain(x, w, x, groups=64)) == []
    assert allocated(plain(x[:, :, :, ::2], w, x, groups=64)) == [2 * 64 * 32 * 4]


def test_large_filters_may_be_transformed_by_fft():
    x, w, y = meta(64, 16, 64, 64), meta(16, 16, 9, 9), meta(64, 16, 56, 56)
    # Tiles of 32 x 32 give 24 x 24 results: nine for an image; 17 of 32 columns of complex floats are kept.
    fft = (32 * 9 * 64 + 256) * 32 * 17 * 8
    assert work(plain(x, w, y, padding=0))[1] == fft
    strided = work(plain(x, w, meta(64, 16, 28, 28), stride=2, padding=0))[1]
    assert strided == 4 * (64 * 16 * (4096 + 784) + 16 * 16 * 81) + TILES


def test_one_image_may_be_unfolded_into_columns():
    x, w, y = meta(1, 64, 128, 128), meta(1, 64, 7, 7), meta(1, 1, 128, 128)
    assert work(plain(x, w, y, stride=2, padding=3))[1] == 64 * 49 * 128 * 128 * 4


def _convolution(**changes):
    shape = {"batch": 1, "inputs": 64, "outputs": 64, "groups": 1, "source": (64, 64), "result": (64, 64)}
    options = {"kernel": (3, 3), "dense": True, "channels_last": False, "dtype": torch.float32}
    return CudaConvolution(**(shape | options | changes))


sizes = st.sampled_from([1, 3, 8, 64, 200])


@settings(deadline=None)  # The first call imports parts of torch.
@given(
    batch=sizes,
    inputs=sizes,
    outputs=sizes,
    side=st.integers(1, 64),
    kernel=st.sampled_from([(1, 1), (3, 3), (5, 5), (7, 7), (1, 3), (3, 3, 3)]),
    dense=st.booleans(),
    channels_last=st.booleans(),
    dtype=st.sampled_from([torch.float16, BRAIN, torch.float32, torch.float64]),
    capability=st.sampled_from([(7, 0), (7, 5), (8, 0), (9, 0)]),
    purpose=st.sampled_from(["result", "source", "filters"]),
)
def test_the_likely_size_is_within_the_range_and_channels_last_takes_no_more(capability, side, kernel, **changes):
    device = DeviceTraits(kind="cuda", capability=capability, sm_count=132)
    images = (side,) * len(kernel)
    convolution = _convolution(kernel=kernel, source=images, result=images, **changes)
    assert 0 <= likely_bytes(convolution, device) <= most_bytes(convolution, device)
    is_seen = capability == MEASURED or (capability >= (8, 0) and convolution.dtype is torch.float32)
    if not is_seen:
        last = dataclasses.replace(convolution, channels_last=True)
        assert likely_bytes(last, device) <= likely_bytes(dataclasses.replace(last, channels_last=False), device)


def test_floats_are_copied_into_tensor_cores_layout_where_it_was_measured():
    x, w, y = meta(32, 3, 224, 224), meta(64, 3, 7, 7), meta(32, 64, 112, 112)
    stem = plain(x, w, y, stride=2, padding=3, device=H100)
    assert work(stem)[0] == 122_065_680
    # Numbers that may not be rounded leave tensor cores out.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        assert work(plain(x, w, y, stride=2, padding=3, device=H100))[0] == 0


def test_small_filters_are_turned_where_no_tensor_core_takes_floats():
    """Six convolutions of a Turing card, as its snapshot has them (``benchmarks/cuda_streams/counterfactuals.py``)."""
    taken = {(30, 16): (82_880, 50_168), (16, 32): (51_328, 84_032), (32, 64): (205_056, 204_928)}
    turing = DeviceTraits(kind="cuda", capability=(7, 5), sm_count=72)
    for (inputs, outputs), sizes_of in taken.items():
        for purpose, size in zip(("result", "source"), sizes_of, strict=True):
            convolution = _convolution(batch=1, inputs=inputs, outputs=outputs, purpose=purpose)
            assert likely_bytes(convolution, turing) == size
        assert likely_bytes(_convolution(inputs=inputs, outputs=outputs, dense=False), turing) == 0


def test_pixels_that_lie_well_are_multiplied_as_they_lie():
    for side, taken in ((28, 0), (14, 0), (7, 4 * 32 * (512 + 128) * 49 + 16)):
        x, w, y = meta(32, 512, side, side), meta(128, 512, 1, 1), meta(32, 128, side, side)
        assert work(plain(x, w, y, padding=0, device=H100))[0] == taken


def test_each_gradient_is_allocated_before_the_call_that_computes_it():
    x, w = meta(32, 128, 28, 28), meta(128, 128, 3, 3)
    found = backward(x, x, w, [True, True, False], device=H100)
    copies = 2 * 32 * 128 * 784 * 4 + 128 * 128 * 9 * 4 + 16
    assert [line.nbytes for line in found.between[1,]] == [copies, 0]
    # Nine tiles of 128 x 128 leave room for fourteen shares of the pixels.
    assert [line.nbytes for line in found.after] == [copies + 14 * 128 * 128 * 9 * 4]


def test_a_transposed_convolution_is_its_mirror_image():
    small, large, w = (
        meta(4, 64, 16, 16, dtype=BRAIN),
        meta(4, 32, 32, 32, dtype=BRAIN),
        meta(64, 32, 2, 2, dtype=BRAIN),
    )
    up = plain(small, w, large, stride=2, padding=0, transposed=True)
    down = plain(large, meta(64, 32, 2, 2, dtype=BRAIN), small, stride=2, padding=0)
    assert work(up) == work(down)


def backward(gradient, source, weight, mask, *, device=A100):
    out = tuple(tensor if wanted else None for tensor, wanted in zip((source, weight, meta(64)), mask, strict=True))
    return script(
        "aten.convolution_backward.default",
        gradient, source, weight, [64], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, mask, out=out, device=device,
    )  # fmt: skip


def test_backward_takes_a_work_space_for_each_gradient_and_the_reduction_of_the_bias():
    x, w = meta(8, 8, 512, 512), meta(8, 8, 3, 3)
    found = backward(x, x, w, [True, True, True])
    assert [line.key for line in found.lines if line.most is not None] == [
        "work space of the source",
        "work space of the filters",
    ]
    bias = allocated(script("aten.sum.dim_IntList", x, [0, 2, 3], out=meta(8)))
    assert bias
    assert allocated(found)[2:] == bias
    assert allocated(backward(x, x, w, [False, False, True])) == bias
    assert len(allocated(backward(x, x, w, [False, True, False]))) == 1


def test_an_expanded_gradient_is_copied():
    x, w = meta(4, 64, 8, 8), meta(64, 64, 3, 3)
    expanded = meta(1).expand(4, 64, 8, 8)
    assert allocated(backward(expanded, x, w, [True, False, False]))[0] == 4 * 64 * 64 * 4


NET = """
import torch

def model():
    conv = [torch.nn.Conv2d(16, 16, 3, padding=1) for _ in range(3)]
    return torch.nn.Sequential(*conv)

def batch(batch_size):
    return torch.randn(batch_size, 16, 128, 128)

def loss(output, batch):
    return output.square().mean()
"""


@pytest.fixture
def spec(tmp_path):
    target = tmp_path / "net.py"
    target.write_text(NET)
    return JobSpec(target=parse_target(str(target)), batch_size=32, precision="bf16-mixed")


def test_the_interval_of_a_convolutional_net_holds_no_work_space_and_the_most(spec):
    profile = dataclasses.replace(load_profile("a100-80g"), context_low_bytes=0, context_high_bytes=0)
    (answer,) = estimate_here(spec, [profile])
    image = 32 * 16 * 128 * 128 * 2
    peak = answer.peak
    # What is likely to be copied of images in bf16 may be nothing; Winograd's tiles take 36/16 floats of each.
    without = measure(spec, profile).least.peak_reserved
    assert without < peak.reserved_bytes
    assert peak.reserved_interval.low_bytes <= without
    assert peak.high_bytes >= peak.device_bytes + image
    assert any("convolutions" in sentence for sentence in answer.assumptions)


def test_work_space_alone_makes_no_step_fail(spec, monkeypatch):
    # How far measured runs were off is another reason for an upper end that does not fit.
    monkeypatch.setattr(answer, "shipped_residuals", lambda: ResidualTable(level=0.9, entries={}))
    profile = dataclasses.replace(load_profile("a100-80g"), context_low_bytes=0, context_high_bytes=0)
    (roomy,) = estimate_here(spec, [profile])
    exact = dataclasses.replace(profile, usable_bytes=roomy.peak.device_bytes, total_bytes=roomy.peak.device_bytes)
    (filled,) = estimate_here(spec, [exact], advice=False)
    assert filled.peak.high_bytes == exact.usable_bytes
    assert filled.verdict is Verdict.FITS
    # Two MiB less, and the likely work space does not fit; without it the step does.
    tight = dataclasses.replace(exact, usable_bytes=exact.usable_bytes - 2**21)
    assert estimate_here(spec, [tight], advice=False)[0].verdict is Verdict.TIGHT
