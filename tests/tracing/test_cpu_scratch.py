"""The CPU scratch table against the CPU allocator itself: every case runs its op for real under torch.profiler."""

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.profiler import ProfilerActivity, profile
from torch.utils._pytree import tree_leaves, tree_map_only

from memplan.tracing.cuda.release import since
from memplan.tracing.records import DeviceTraits
from memplan.tracing.scratch.cpu_table import CPU_RULES
from memplan.tracing.scratch.rules import Call, Script
from tests.support.benchmarks import benchmark

aten = torch.ops.aten
pytestmark = pytest.mark.usefixtures("one_thread")

# Block sizes inside oneDNN depend on its version and on the instruction set; the table states those it was measured on.
measured_machine = pytest.mark.skipif(
    not torch.__version__.startswith("2.13")
    or "AVX512" not in torch.backends.cpu.get_cpu_capability()
    or torch.cpu._is_amx_tile_supported(),
    reason="oneDNN's formulas are stated for torch 2.13 on AVX-512 without AMX",
)


def real_curve(func, args, kwargs):
    """Peak and final bytes of one op, as the allocator reports them."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        out = func(*args, **kwargs)
    events = profiler.profiler.kineto_results.events()
    steps = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    live = peak = 0
    for _, nbytes in steps:
        live += nbytes
        peak = max(peak, live)
    del out
    return peak, live


def likely(step):
    return step.nbytes


def predicted_curve(func, args, kwargs, size=likely):
    """The same from the table, with fake tensors of the same shapes and strides."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        args, kwargs = tree_map_only(torch.Tensor, mode.from_tensor, (args, kwargs))
        out = func(*args, **kwargs)
        call = Call(
            name=str(func),
            args=args,
            kwargs=kwargs,
            out=out,
            device=DeviceTraits(kind="cpu"),
            in_backward=False,
            is_host=lambda _: False,
        )
        script = CPU_RULES[str(func)](call) or Script()
    seen = {t.untyped_storage()._cdata for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
    steps = [*script.before]
    for index, result in enumerate(out if isinstance(out, tuple | list) else [out]):
        steps += script.between.get((index,), ())
        storage = result.untyped_storage() if isinstance(result, torch.Tensor) else None
        if storage is not None and storage._cdata not in seen:
            seen.add(storage._cdata)
            steps.append(storage.nbytes())
    held, live, peak = {}, 0, 0
    for step in (*steps, *script.after):
        if isinstance(step, int):
            live += step
        elif step.action == "alloc":
            assert step.nbytes > 0 or step.most, "an empty allocation"
            assert step.key not in held, "allocated twice"
            held[step.key] = size(step)
            live += size(step)
        else:
            live -= held.pop(step.key)
        peak = max(peak, live)
    return peak, live - sum(held.values())


def compare(func, *args, slack=0, **kwargs):
    real_peak, real_end = real_curve(func, args, kwargs)
    peak, end = predicted_curve(func, args, kwargs)
    assert end == pytest.approx(real_end, abs=max(slack, 16))
    assert peak == pytest.approx(real_peak, abs=max(slack, 16)), f"{peak - real_peak:+} bytes of {real_peak}"


def convolution(batch, inputs, size, outputs, kernel, *, stride=1, groups=1, transposed=False, last=False, bias=True):
    padding = 0 if kernel == 1 else kernel // 2
    source = torch.randn(batch, inputs, size, size)
    if last:
        source = source.to(memory_format=torch.channels_last)
    first, second = (inputs, outputs // groups) if transposed else (outputs, inputs // groups)
    weight = torch.randn(first, second, kernel, kernel)
    pairs = ([stride] * 2, [padding] * 2, [1, 1], transposed, [0, 0], groups)
    return source, weight, torch.randn(outputs) if bias else None, *pairs


def gradients(arguments, mask=(True, True, True)):
    source, weight, bias, *rest = arguments
    gradient = torch.randn_like(aten.convolution(*arguments))
    return gradient, source, weight, None if bias is None else list(bias.shape), *rest, list(mask)


def _turned(arguments):
    source, *rest = arguments
    return source.transpose(1, 2).contiguous().transpose(1, 2), *rest


CONVOLUTIONS = {
    "blocked": convolution(4, 32, 20, 48, 3),
    "padded channels": convolution(4, 20, 20, 24, 3),
    "first layer": convolution(4, 3, 24, 32, 7, stride=2),
    "no bias": convolution(4, 16, 20, 32, 3, bias=False),
    "pointwise, large batch": convolution(16, 20, 12, 32, 1),
    "pointwise by PyTorch": convolution(4, 20, 12, 32, 1),
    "depthwise": convolution(4, 32, 20, 32, 3, groups=32),
    "grouped": convolution(4, 64, 20, 64, 3, groups=2),
    "grouped, narrow": convolution(4, 20, 20, 20, 3, groups=5),
    "one image by PyTorch": convolution(1, 16, 20, 32, 3),
    "transposed": convolution(4, 16, 10, 32, 3, transposed=True),
    "transposed, doubling": convolution(4, 32, 10, 16, 2, stride=2, transposed=True),
    "transposed to three channels": convolution(4, 32, 10, 3, 3, transposed=True),
    "strided source": _turned(convolution(4, 32, 20, 16, 3)),
    "strided source, by PyTorch": _turned(convolution(1, 16, 20, 16, 3)),
    "channels last": convolution(4, 16, 20, 32, 3, last=True),
}


@measured_machine
@pytest.mark.parametrize("arguments", CONVOLUTIONS.values(), ids=CONVOLUTIONS.keys())
def test_convolution_takes_what_the_table_says(arguments):
    # brgemm takes some pages of buffers that the table knows only nearly.
    slack = (
        32_768
        if max(arguments[3]) > 1 and arguments[6]
        else 9_000
        if arguments[0].is_contiguous(memory_format=torch.channels_last)
        else 0
    )
    compare(aten.convolution.default, *arguments, slack=slack)


@measured_machine
@pytest.mark.parametrize("arguments", CONVOLUTIONS.values(), ids=CONVOLUTIONS.keys())
def test_convolution_backward_takes_what_the_table_says(arguments):
    # oneDNN's strided backward keeps one image's gradient in pages that the table only knows nearly.
    slack = 8192 if max(arguments[3]) > 1 or arguments[0].is_contiguous(memory_format=torch.channels_last) else 512
    mask = (arguments[0].shape[1] > 3, True, arguments[2] is not None)
    compare(aten.convolution_backward.default, *gradients(arguments, mask), slack=slack)


CHANNELS_LAST = {
    f"{source}, {weight}, {gradient}": (source, weight, gradient)
    for source in ("source as it lies", "source turned")
    for weight in ("weight as it lies", "weight turned")
    for gradient in ("gradient as it lies", "gradient turned")
}


@pytest.mark.parametrize("turned", CHANNELS_LAST.values(), ids=CHANNELS_LAST.keys())
def test_one_channels_last_operand_turns_the_others(turned):
    source, weight, gradient = (
        torch.randn(shape).to(memory_format=torch.channels_last if "turned" in name else torch.contiguous_format)
        for shape, name in zip(((4, 16, 24, 24), (32, 16, 3, 3), (4, 32, 24, 24)), turned, strict=True)
    )
    rest = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    # brgemm takes two pages of buffers that the table leaves out.
    compare(aten.convolution.default, source, weight, torch.randn(32), *rest, slack=9_000)
    compare(aten.convolution_backward.default, gradient, source, weight, [32], *rest, [True] * 3, slack=9_000)


def test_a_weight_that_does_not_lie_dense_is_copied():
    # The gradient of a gradient convolves with a turned gradient in the place of the weights.
    source, weight = torch.randn(8, 4, 16, 16).transpose(0, 1), torch.randn(8, 8, 16, 16).transpose(0, 1)
    compare(aten.convolution.default, source, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, slack=9_000)


avx2_machine = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() != "AVX2" or not torch.__version__.startswith("2.13"),
    reason="oneDNN's formulas are stated for torch 2.13, these for AVX2",
)


@avx2_machine
@pytest.mark.parametrize(("inputs", "outputs", "size"), [(8, 24, (48, 32)), (3, 24, (32, 32)), (32, 96, (128,))])
@pytest.mark.parametrize("dilation", [2, 4])
def test_dilated_filters_and_wide_margins_are_matrix_products_on_avx2(inputs, outputs, size, dilation):
    rank = len(size)
    source, weight = torch.randn(4, inputs, *size), torch.randn(outputs, inputs, *[3] * rank)
    rest = ([1] * rank, [dilation] * rank, [dilation] * rank, False, [0] * rank, 1)
    compare(aten.convolution.default, source, weight, None, *rest)
    gradient = torch.randn(4, outputs, *size)
    compare(aten.convolution_backward.default, gradient, source, weight, None, *rest, [True, True, False], slack=512)


@measured_machine
@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("name", [name for name in CONVOLUTIONS if name != "channels last"])
def test_threads_add_up_gradients_of_weights_in_buffers_of_their_own(name, threads):
    torch.set_num_threads(threads)
    arguments = CONVOLUTIONS[name]
    compare(aten.convolution_backward.default, *gradients(arguments, (False, True, arguments[2] is not None)))


@measured_machine
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    threads=st.integers(2, 4),
    batch=st.integers(2, 6),
    inputs=st.integers(1, 70),
    outputs=st.integers(1, 70),
    kernel=st.sampled_from((1, 3, 5)),
    stride=st.sampled_from((1, 2)),
    size=st.integers(8, 24),
    bias=st.booleans(),
)
def test_weights_of_any_convolution_by_any_threads(threads, batch, inputs, outputs, kernel, stride, size, bias):
    # Strided 1x1 filters of few channels may take some kilobytes less: how oneDNN divides them is not known wholly.
    assume(kernel > 1 or stride == 1)
    torch.set_num_threads(threads)
    arguments = convolution(batch, inputs, size, outputs, kernel, stride=stride, bias=bias)
    compare(aten.convolution_backward.default, *gradients(arguments, (False, True, bias)))


@measured_machine
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("inputs", [3, 16])
def test_weights_of_filters_too_wide_for_blocks_are_a_matrix_product(inputs, threads):
    torch.set_num_threads(threads)
    for kernel in (14, 15, 16):
        arguments = list(convolution(2, inputs, 4 * kernel, 48, kernel, stride=kernel))
        arguments[4] = [0, 0]
        compare(aten.convolution_backward.default, *gradients(arguments, (False, True, True)))


@measured_machine
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batch=st.integers(2, 5),
    inputs=st.integers(1, 70),
    outputs=st.integers(1, 70),
    kernel=st.sampled_from((3, 5)),
    size=st.integers(8, 24),
)
def test_any_convolution_and_its_gradients(batch, inputs, outputs, kernel, size):
    arguments = convolution(batch, inputs, size, outputs, kernel)
    compare(aten.convolution.default, *arguments)
    compare(aten.convolution_backward.default, *gradients(arguments), slack=1024)


@avx2_machine
@pytest.mark.parametrize(("channels", "side"), [(16, 16), (16, 32), (32, 16)])
def test_columns_larger_than_a_cache_go_through_it_in_blocks_on_avx2(channels, side):
    source, weight = torch.randn(2, channels, side, side), torch.randn(channels, channels, 9, 9)
    arguments = source, weight, torch.randn(channels), [1, 1], [4, 4], [1, 1], False, [0, 0], 1
    call = Call(
        name="aten.convolution.default", args=arguments, kwargs={}, out=source, device=DeviceTraits(kind="cpu"),
        in_backward=False, is_host=lambda _: False,
    )  # fmt: skip
    (columns,) = [line for line in CPU_RULES[call.name](call).before if line.most is not None]
    others = 2 * source.numel() * source.element_size()
    real, _ = real_curve(aten.convolution.default, arguments, {})
    assert columns.nbytes / 2 < real - others // 2 <= columns.nbytes < columns.most


@avx2_machine
@pytest.mark.parametrize(("kernel", "stride"), [(3, 2), (5, 2), (7, 2), (5, 1)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last_3d])
def test_lists_of_products_are_as_long_as_filters_have_weights_on_avx2(kernel, stride, layout):
    transposed = layout is torch.contiguous_format
    source = torch.randn(2, 16, 6, 8, 8).contiguous(memory_format=layout)
    weight = torch.randn(16, 16, *[kernel] * 3)
    pairs = [stride] * 3, [kernel // 2] * 3, [1] * 3, transposed, [0] * 3, 1
    compare(aten.convolution.default, source, weight, torch.randn(16), *pairs)


@avx2_machine
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("channels", "kernel", "stride", "sides"),
    [(32, 5, 1, (4, 4)), (32, 7, 1, (4, 6)), (3, 7, 2, (6, 4)), (16, 7, 1, (12, 2))],
)
def test_filters_larger_than_what_they_read_are_matrix_products_on_avx2(channels, kernel, stride, sides, transposed):
    source, weight = torch.randn(4, channels, *sides), torch.randn(*[channels] * 2, kernel, kernel)
    pairs = [stride] * 2, [kernel // 2] * 2, [1, 1], transposed, [0, 0], 1
    arguments = source, weight, torch.randn(channels), *pairs
    compare(aten.convolution.default, *arguments)
    for mask in ((True, True, True), (True, False, False)):
        compare(aten.convolution_backward.default, *gradients(arguments, mask))


@avx2_machine
@pytest.mark.parametrize(("kernel", "stride", "dilation"), [(3, 1, 1), (3, 2, 1), (3, 1, 2), (5, 1, 1), (1, 2, 1)])
@pytest.mark.parametrize("channels", [2, 10])
def test_volumes_of_single_channels_are_brought_back_to_planes_on_avx2(channels, kernel, stride, dilation):
    source, weight = torch.randn(2, channels, 8, 12, 12), torch.randn(channels, 1, *[kernel] * 3)
    pairs = [stride] * 3, [kernel // 2 * dilation] * 3, [dilation] * 3, False, [0] * 3, channels
    arguments = source, weight, torch.randn(channels), *pairs
    compare(aten.convolution.default, *arguments)
    compare(aten.convolution_backward.default, *gradients(arguments))


@avx2_machine
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("channels", [2, 12])
@pytest.mark.parametrize("sides", [(60,), (14, 20), (6, 10, 14)], ids=["rows", "images", "volumes"])
def test_transposed_convolutions_of_single_channels_are_onednns_on_avx2(sides, channels, stride):
    dims = len(sides)
    source, weight = torch.randn(3, channels, *sides), torch.randn(channels, 1, *[3] * dims)
    pairs = [stride] * dims, [1] * dims, [1] * dims, True, [stride - 1] * dims, channels
    for bias in (torch.randn(channels), None):
        compare(aten.convolution.default, source, weight, bias, *pairs)
    compare(aten.convolution_backward.default, *gradients((source, weight, torch.randn(channels), *pairs)))


@avx2_machine
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("stride", [2, 3])
@pytest.mark.parametrize(
    ("dims", "inputs", "size", "outputs", "kernel"),
    [
        (1, 64, 81, 64, 3),
        (2, 32, 24, 64, 3),
        (2, 32, 15, 64, 5),
        (2, 64, 25, 128, 3),
        (2, 16, 40, 128, 1),
        (3, 32, 9, 64, 3),
    ],
)
def test_strided_gradients_in_groups_lie_plain_on_avx2(dims, inputs, size, outputs, kernel, stride, groups):
    source = torch.randn(3, inputs, *[size] * dims)
    weight, bias = torch.randn(outputs, inputs // groups, *[kernel] * dims), torch.randn(outputs)
    rest = ([stride] * dims, [kernel // 2] * dims, [1] * dims, False, [0] * dims, groups)
    gradient = torch.randn_like(aten.convolution(source, weight, bias, *rest))
    compare(aten.convolution.default, source, weight, bias, *rest)
    compare(aten.convolution_backward.default, gradient, source, weight, [outputs], *rest, [True] * 3, slack=512)


OWN_TYPES = [torch.float64, torch.bfloat16, torch.float16]
FORMATS = {
    1: [torch.contiguous_format],
    2: [torch.contiguous_format, torch.channels_last],
    3: [torch.contiguous_format, torch.channels_last_3d],
}


@st.composite
def own_convolutions(draw):
    """Arguments of a convolution in a type that oneDNN does not serve here, and a gradient of its result."""
    dtype = draw(st.sampled_from(OWN_TYPES))
    assume(not (dtype is torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()))
    assume(not (dtype is torch.float16 and torch.ops.mkldnn._is_mkldnn_fp16_supported()))
    dims, groups, kernel = draw(st.integers(1, 3)), draw(st.sampled_from((1, 1, 2, 4))), draw(st.integers(1, 3))
    inputs, outputs = (groups * draw(st.sampled_from((1, 2, 8))) for _ in range(2))
    transposed, dilation, stride = draw(st.booleans()), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    shape = (inputs, outputs // groups) if transposed else (outputs, inputs // groups)
    formats = st.sampled_from(FORMATS[dims])
    source = torch.randn(draw(st.sampled_from((1, 3))), inputs, *[(60, 12, 6)[dims - 1]] * dims).to(dtype)
    source = source.contiguous(memory_format=draw(formats))
    weight = torch.randn(*shape, *[kernel] * dims).to(dtype).contiguous(memory_format=draw(formats))
    margin = draw(st.sampled_from((0, kernel // 2 * dilation)))
    rest = ([stride] * dims, [margin] * dims, [dilation] * dims, transposed, [0] * dims, groups)
    bias = torch.randn(outputs).to(dtype) if draw(st.booleans()) else None
    result = aten.convolution(source, weight, bias, *rest)
    gradient = torch.randn_like(result).contiguous(memory_format=draw(formats))
    if draw(st.booleans()):
        gradient = torch.ones((), dtype=dtype).expand(result.shape)
    return (source, weight, bias, *rest), gradient


@pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="stated for the kernels of torch 2.13")
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=own_convolutions(), wants_source=st.booleans(), wants_weight=st.booleans())
def test_any_convolution_that_onednn_does_not_serve(case, wants_source, wants_weight):
    (source, weight, bias, *rest), gradient = case
    mask = [wants_source, wants_weight, bias is not None]
    assume(any(mask))
    compare(aten.convolution.default, source, weight, bias, *rest, slack=32)
    sizes = None if bias is None else list(bias.shape)
    compare(aten.convolution_backward.default, gradient, source, weight, sizes, *rest, mask, slack=32)


@measured_machine
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.integers(32, 1200),
    depth=st.integers(32, 1500),
    columns=st.integers(16, 300),
    layout=st.sampled_from(("plain", "left transposed", "right transposed")),
)
def test_any_bfloat16_product(rows, depth, columns, layout):
    left = torch.ones(rows, depth, dtype=torch.bfloat16)
    right = torch.ones(depth, columns, dtype=torch.bfloat16)
    if layout == "left transposed":
        left = torch.ones(depth, rows, dtype=torch.bfloat16).t()
    if layout == "right transposed":
        right = torch.ones(columns, depth, dtype=torch.bfloat16).t()
    compare(aten.mm.default, left, right)


@st.composite
def filters(draw):
    """Sources and filters of images and volumes, and the rest of a convolution's arguments."""
    side, width, stride, padding, dilation = (
        draw(st.integers(*ends)) for ends in ((6, 16), (1, 5), (1, 2), (0, 2), (1, 2))
    )
    assume((width - 1) * dilation < side + 2 * padding)
    dims, inputs, outputs = (
        draw(st.sampled_from([2, 3])),
        draw(st.integers(1, 17)),
        draw(st.sampled_from([3, 8, 16, 24])),
    )
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16]))
    source = torch.ones(20 if dims == 2 else draw(st.integers(1, 2)), inputs, *[side] * dims, dtype=dtype)
    weight = torch.ones(outputs, inputs, *[width] * dims, dtype=dtype)
    return source, weight, None, [stride] * dims, [padding] * dims, [dilation] * dims, False, [0] * dims, 1


@measured_machine
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(case=filters())
def test_gradients_of_any_filters_lie_between_their_ends(case):
    source, weight, _, *rest = case
    assume(
        not (source.dim() == 4 and rest[2][0] > 1 and source.dtype is torch.float32)
    )  # Which kernel: not known of all.
    arguments = torch.ones_like(aten.convolution(*case)), source, weight, None, *rest, [False, True, False]
    func = aten.convolution_backward.default
    real, _ = real_curve(func, arguments, {})
    least, _ = predicted_curve(func, arguments, {}, lambda step: 0 if step.most is not None else step.nbytes)
    most, _ = predicted_curve(func, arguments, {}, lambda step: max(step.most or 0, step.nbytes))
    assert least - 64 <= real <= most + 64


LAYOUTS = {
    "dense": torch.ones,
    "turned": lambda rows, columns: torch.ones(columns, rows).t(),
    "part of rows": lambda rows, columns: torch.ones(rows, 2 * columns)[:, :columns],
    "part of columns": lambda rows, columns: torch.ones(columns, 2 * rows)[:, :rows].t(),
    "every other": lambda rows, columns: torch.ones(rows, 2 * columns)[:, ::2],
    "one row": lambda rows, columns: torch.ones(1, columns).expand(rows, columns),
}


def laid_out(layout, *sizes, dtype=torch.bfloat16):
    """Ones, each item of a batch in this layout."""
    *batch, rows, columns = sizes
    stride = LAYOUTS[layout](rows, columns).stride()
    return torch.empty_strided(sizes, (*(4 * rows * columns for _ in batch), *stride), dtype=dtype).zero_()


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_a_matrix_for_a_vector(layout):
    matrix = laid_out(layout, 300, 200, dtype=torch.float32)
    compare(aten.mv.default, matrix, torch.ones(200))
    compare(aten.addmv.default, torch.ones(300), matrix, torch.ones(400)[::2])


@measured_machine
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.tuples(st.integers(2, 400), st.integers(2, 400), st.integers(2, 300)),
    layouts=st.tuples(*[st.sampled_from(sorted(LAYOUTS))] * 2),
)
def test_any_bfloat16_product_of_any_layouts(sizes, layouts):
    rows, depth, columns = sizes
    left, right = laid_out(layouts[0], rows, depth), laid_out(layouts[1], depth, columns)
    compare(aten.mm.default, left, right)
    compare(aten.addmm.default, torch.ones(columns, dtype=torch.bfloat16), left, right)
    compare(aten.mv.default, left, right[:, 0])
    batches = laid_out(layouts[0], 3, rows, depth), laid_out(layouts[1], 3, depth, columns)
    compare(aten.bmm.default, *batches)
    compare(aten.addbmm.default, torch.ones(rows, columns, dtype=torch.bfloat16), *batches)


@pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="stated for the kernels of torch 2.13")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_of_lists_one_after_the_other(dtype):
    lefts = [torch.ones(size, 64, dtype=dtype) for size in (32, 300, 96)]
    rights = [torch.ones(64, size, dtype=dtype) for size in (24, 100, 40)]
    compare(aten._foreach_mm.default, lefts, rights)
    compare(aten._foreach_mm.default, lefts, [right[:, ::2] for right in rights])


def lstm(steps, batch, inputs, hidden):
    gates = 4 * hidden
    weights = (torch.randn(gates, inputs), torch.randn(gates, hidden), torch.randn(gates), torch.randn(gates))
    states = (torch.zeros(batch, hidden), torch.zeros(batch, hidden))
    return torch.randn(steps, batch, inputs), *weights, *states, False, [], 2, hidden, 1, True, False, False, True


@pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="stated for the oneDNN of torch 2.13")
@pytest.mark.parametrize("shape", [(64, 4, 256, 128), (7, 3, 24, 20), (5, 130, 64, 64), (10, 2, 20, 64)])
def test_lstm_forward_and_backward(shape):
    arguments = lstm(*shape)
    compare(aten.mkldnn_rnn_layer.default, *arguments)
    output, hidden, cell, workspace = aten.mkldnn_rnn_layer(*arguments)
    source, *weights, hx, cx, reverse, sizes, mode, width, layers, biases, bidirectional, first, train = arguments
    compare(
        aten.mkldnn_rnn_layer_backward.default,
        *(source, *weights, hx, cx, output, hidden, cell, torch.ones_like(output), None, None, reverse),
        *(mode, width, layers, biases, train, bidirectional, sizes, first, workspace),
        # On fakes both gradients of the bias are one tensor; the real kernel copies it.
        slack=weights[2].nbytes,
    )


def attention(batch=2, heads=3, length=145, width=32):
    return tuple(torch.randn(batch, length, heads, width).transpose(1, 2) for _ in range(3))


def attention_backward():
    query, key, value = attention(length=200)
    out, lse = aten._scaled_dot_product_flash_attention_for_cpu(query, key, value)
    return torch.randn_like(out), query, key, value, out, lse, 0.0, False


def layer_norm_backward():
    source = torch.randn(8, 50, 96).transpose(0, 1)
    gradient, weight, bias = torch.randn(50, 8, 96), torch.ones(96), torch.zeros(96)
    _, mean, rstd = aten.native_layer_norm(source, [96], weight, bias, 1e-5)
    return gradient, source, [96], mean, rstd, weight, bias, [True, True, True]


def group_norm(shape, layout=torch.contiguous_format):
    source = torch.randn(shape).to(memory_format=layout)
    pixels = source.numel() // (shape[0] * shape[1])
    return source, torch.ones(shape[1]), torch.zeros(shape[1]), shape[0], shape[1], pixels, 4, 1e-5


def group_norm_backward(shape, layout=torch.contiguous_format):
    source, weight, _, *rest, _ = arguments = group_norm(shape, layout)
    _, mean, rstd = aten.native_group_norm(*arguments)
    return torch.randn_like(source), source, mean, rstd, weight, *rest, [True, True, True]


def batch_norm_backward():
    source, ones = torch.randn(4, 32, 12, 12), torch.ones(32)
    _, mean, inverse = aten.native_batch_norm(source, ones, ones, ones.clone(), ones.clone(), True, 0.1, 1e-5)
    return torch.randn_like(source), source, ones, ones, ones, mean, inverse, True, 1e-5, [True, True, True]


KERNELS = {
    "attention": (aten._scaled_dot_product_flash_attention_for_cpu.default, attention),
    "attention, long": (aten._scaled_dot_product_flash_attention_for_cpu.default, lambda: attention(length=900)),
    "attention backward": (aten._scaled_dot_product_flash_attention_for_cpu_backward.default, attention_backward),
    "safe softmax": (aten._safe_softmax.default, lambda: (torch.randn(3, 40, 50), -1)),
    "layer norm of a view": (
        aten.native_layer_norm.default,
        lambda: (torch.randn(8, 50, 96).transpose(0, 1), [96], torch.ones(96), torch.zeros(96), 1e-5),
    ),
    "layer norm, mixed types": (
        aten.native_layer_norm.default,
        lambda: (torch.randn(50, 96).bfloat16(), [96], torch.ones(96), torch.zeros(96), 1e-5),
    ),
    "layer norm backward": (aten.native_layer_norm_backward.default, layer_norm_backward),
    "batch norm backward": (aten.native_batch_norm_backward.default, batch_norm_backward),
    "mean squared error": (aten.mse_loss.default, lambda: (torch.randn(30, 40), torch.randn(30, 40))),
    "smooth error": (aten.smooth_l1_loss.default, lambda: (torch.randn(30, 40), torch.randn(30, 40))),
    "huber error": (aten.huber_loss.default, lambda: (torch.randn(30, 40), torch.randn(30, 40))),
    "cross entropy of probabilities": (aten.binary_cross_entropy.default, lambda: (torch.rand(3000), torch.rand(3000))),
    "sum of booleans": (aten.sum.dim_IntList, lambda: (torch.ones(60, 40).bool(), [1])),
    "log of sum of exponentials": (aten.logsumexp.default, lambda: (torch.randn(60, 40), [1])),
    "magnitude": (aten.abs.default, lambda: (torch.randn(60, 40, dtype=torch.complex64),)),
    "sorting": (aten.sort.default, lambda: (torch.randn(20, 500), 0)),
    "unfolding": (aten.im2col.default, lambda: (torch.randn(2, 3, 20, 20), [3, 3], [1, 1], [0, 0], [1, 1])),
    "folding": (aten.col2im.default, lambda: (torch.randn(2, 27, 324), [20, 20], [3, 3], [1, 1], [0, 0], [1, 1])),
    "writing through a mask": (
        aten.index_put.default,
        lambda: (torch.zeros(40, 50), [torch.ones(40, 50).bool()], torch.randn(2000), True),
    ),
    "squared error by element": (aten.mse_loss.default, lambda: (torch.randn(30, 40), torch.randn(30, 40), 0)),
    "cross entropy with logits": (
        aten.binary_cross_entropy_with_logits.default,
        lambda: (torch.randn(3000), torch.rand(3000)),
    ),
    "cross entropy with logits by element": (
        aten.binary_cross_entropy_with_logits.default,
        lambda: (torch.randn(3000), torch.rand(3000), None, None, 0),
    ),
    "cross entropy with logits, positives weighted": (
        aten.binary_cross_entropy_with_logits.default,
        lambda: (torch.randn(30, 100), torch.rand(30, 100), None, torch.rand(100)),
    ),
    "soft margin": (aten.soft_margin_loss.default, lambda: (torch.randn(3000), torch.rand(3000))),
    "group norm": (aten.native_group_norm.default, lambda: group_norm((2, 16, 10, 10))),
    "group norm of channels last": (
        aten.native_group_norm.default,
        lambda: group_norm((2, 16, 10, 10), torch.channels_last),
    ),
    "group norm of channels last, large": (
        aten.native_group_norm.default,
        lambda: group_norm((2, 16, 40, 40), torch.channels_last),
    ),
    "group norm of channels last, volumes": (
        aten.native_group_norm.default,
        lambda: group_norm((2, 16, 4, 5, 5), torch.channels_last_3d),
    ),
    "group norm backward": (
        aten.native_group_norm_backward.default,
        lambda: group_norm_backward((2, 16, 10, 10)),
    ),
    "group norm backward of channels last, volumes": (
        aten.native_group_norm_backward.default,
        lambda: group_norm_backward((2, 16, 4, 5, 5), torch.channels_last_3d),
    ),
    "distances": (aten._euclidean_dist.default, lambda: (torch.randn(8, 96, 64), torch.randn(8, 40, 64))),
    "half-type mean": (aten.mean.dim, lambda: (torch.randn(20, 30, 40).bfloat16(), [1])),
    "embedding of a view": (aten.embedding.default, lambda: (torch.randn(50, 8), torch.zeros(40, 30).long().t())),
    "embedding backward": (
        aten.embedding_dense_backward.default,
        lambda: (torch.randn(30, 40, 8).transpose(0, 1), torch.zeros(40, 30).long(), 50, -1, False),
    ),
    "small upsampling": (aten.upsample_nearest2d.default, lambda: (torch.randn(2, 8, 16, 16), [32, 32])),
    "large upsampling": (aten.upsample_nearest2d.default, lambda: (torch.randn(2, 8, 40, 40), [80, 80])),
    "product of mixed types": (aten.mul.Tensor, lambda: (torch.zeros(70, 9).long(), torch.ones(70, 9).bool())),
}


@pytest.mark.parametrize(("func", "make"), KERNELS.values(), ids=KERNELS.keys())
def test_kernels_take_what_the_table_says(func, make):
    compare(func, *make(), slack=64)


@pytest.mark.parametrize("func", [aten.sum.dim_IntList, aten.mean.dim])
def test_reductions_into_another_type_copy_their_input(func):
    compare(func, torch.randn(20, 30).bfloat16(), [1], dtype=torch.float32)
    compare(func, torch.randn(20, 30), [1], dtype=torch.float64)


@pytest.mark.parametrize("shape", [(12, 40), (3, 12, 40)])
def test_kernels_that_read_rows_copy_what_lies_turned(shape):
    aten = torch.ops.aten
    turned = torch.randn(shape).mT.contiguous().mT
    for func in (aten.log_sigmoid_forward.default, aten.max.default, aten.min.default, aten.aminmax.default):
        compare(func, turned)
    compare(aten.aminmax.default, turned, dim=0)
    for reduction in (0, 1):
        compare(aten.binary_cross_entropy_with_logits.default, turned, torch.rand(shape), None, None, reduction)
    others = torch.randn(1, 7, 40).mT.contiguous().mT[0] if len(shape) == 2 else torch.randn(1, 7, 40)
    distances = aten._cdist_forward.default(turned, others, 1.0, None)
    compare(aten._cdist_forward.default, turned, others, 1.0, None)
    compare(aten._cdist_backward.default, torch.randn(distances.shape), turned, others, 1.0, distances)


def test_losses_over_classes_and_margins_read_rows():
    aten = torch.ops.aten
    scores, labels = torch.randn(40, 12).t(), torch.randint(0, 40, (12,))
    compare(aten.multi_margin_loss.default, scores, labels)
    compare(aten.multi_margin_loss_backward.default, torch.ones(()), scores, labels, 1, 1.0)
    several = torch.randint(0, 40, (40, 12)).t()
    loss, is_target = aten.multilabel_margin_loss_forward.default(scores, several, 1)
    compare(aten.multilabel_margin_loss_forward.default, scores, several, 1)
    compare(aten.multilabel_margin_loss_backward.default, torch.ones_like(loss), scores, several, 1, is_target)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_onednn_brings_gradients_into_the_layout_of_their_source(approximate, dtype):
    source = torch.randn(40, 12, dtype=dtype)
    for gradient in (torch.ones((), dtype=dtype).expand(40, 12), torch.ones(12, 40, dtype=dtype).t(), source):
        compare(aten.gelu_backward.default, gradient, source, approximate=approximate)


@pytest.mark.skipif(not since("2.13"), reason="torch 2.6 gives MKL strides that it refuses")
def test_fourier_transforms_write_out_what_is_expanded():
    gradient = torch.ones((), dtype=torch.complex64).expand(16, 17, 18)
    compare(aten._fft_c2c.default, gradient, [2], 0, False)
    compare(aten._fft_r2c.default, torch.ones(()).expand(16, 17, 18), [1, 2], 0, True)


def test_rolling_and_choosing_columns():
    aten = torch.ops.aten
    video = torch.randn(2, 6, 8, 10)
    for source in (video, video.mT.contiguous().mT):
        compare(aten.roll.default, source, [1], [1])
        compare(aten.roll.default, source, [3])
        compare(aten.roll.default, source, [1, 2, 3], [1, 2, 3])
    compare(aten.narrow_copy.default, video.mT, 1, 2, 2)
    compare(aten._safe_softmax.default, video.mT, -1)
    compare(aten._safe_softmax.default, video, -1)
    for dim in (0, 1, -1):
        compare(aten.index_select.default, torch.randn(30, 20).t(), dim, torch.arange(5))
        compare(aten.index_select.default, video.mT, dim, torch.arange(2))


def test_padding_and_drawn_pooling_read_rows():
    aten = torch.ops.aten
    compare(aten.reflection_pad1d.default, torch.randn(40, 12).t(), [2, 3])
    compare(aten.replication_pad1d.default, torch.randn(40, 12).t(), [2, 3])
    image, grid = torch.randn(2, 3, 16, 16), torch.randn(2, 12, 12, 2)
    options = (0, 0, False, [True, True])
    compare(aten.grid_sampler_2d_backward.default, torch.ones(()).expand(2, 3, 12, 12), image, grid, *options)
    gradient, source = torch.ones(()).expand(12, 45), torch.randn(12, 40)
    compare(aten.reflection_pad1d_backward.default, gradient, source, [2, 3])
    compare(aten.replication_pad1d_backward.default, gradient, source, [2, 3])
    image = torch.randn(2, 12, 10, 3).permute(0, 3, 1, 2)
    compare(aten.fractional_max_pool2d.default, image, [2, 2], [5, 5], torch.rand(2, 3, 2))
    for layout in (torch.contiguous_format, torch.channels_last):
        pooled, places = torch.nn.functional.max_pool2d(image.contiguous(memory_format=layout), 2, return_indices=True)
        for turned in (pooled, pooled.mT.contiguous().mT):
            compare(aten.max_unpool2d.default, turned, places, [12, 10])
    volume = torch.randn(2, 9, 8, 7, 3).permute(0, 4, 1, 2, 3)
    pooled, places = torch.nn.functional.max_pool3d(volume, 2, return_indices=True)
    compare(aten.max_unpool3d.default, pooled, places, [9, 8, 7], [2, 2, 2], [0, 0, 0])
    compare(aten.fractional_max_pool3d.default, volume, [2, 2, 2], [4, 4, 3], torch.rand(2, 3, 3))


def test_stable_sorting_takes_a_row_of_indices():
    compare(aten.sort.stable, torch.randn(20, 500), stable=True, dim=0)


@measured_machine
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_a_type_that_onednn_lacks_on_this_machine_stays_with_pytorch(dtype):
    source, weight, bias, *rest = convolution(4, 32, 20, 48, 3)
    compare(aten.convolution.default, source.to(dtype), weight.to(dtype), bias.to(dtype), *rest)


@pytest.mark.parametrize(("groups", "dilation"), [(1, 2), (4, 1), (8, 1), (2, 3)])
@pytest.mark.parametrize("size", [(24, 16), (96,)])
def test_what_pytorch_unrolls_itself_goes_image_by_image_or_group_by_group(groups, dilation, size):
    rank = len(size)
    source, weight = (torch.randn(shape).double() for shape in ((4, 8, *size), (8, 8 // groups, *[3] * rank)))
    rest = ([1] * rank, [dilation] * rank, [dilation] * rank, False, [0] * rank, groups)
    compare(aten.convolution.default, source, weight, None, *rest)
    gradient = torch.randn(4, 8, *size).double()
    compare(aten.convolution_backward.default, gradient, source, weight, None, *rest, [True, True, False], slack=2048)


@avx2_machine
@pytest.mark.parametrize(
    ("inputs", "side", "outputs", "kernel", "stride", "padding"),
    [(3, 64, 64, 11, 4, 2), (3, 32, 12, 8, 2, 2), (8, 32, 12, 8, 3, 1), (8, 32, 12, 7, 2, 2), (8, 32, 12, 16, 2, 0)],
    ids=["AlexNet's first", "eight", "three steps", "seven", "no margin"],
)
def test_strided_filters_with_a_margin_are_matrix_products_from_a_width_on_avx2(
    inputs, side, outputs, kernel, stride, padding
):
    source, weight = torch.randn(4, inputs, side, side), torch.randn(outputs, inputs, kernel, kernel)
    rest = ([stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1)
    compare(aten.convolution.default, source, weight, None, *rest)


@avx2_machine
@pytest.mark.parametrize("kernel", [9, 12, 16, 24, 28, 30, 32, 34])
def test_those_as_large_as_an_image_lie_between_their_ends_on_avx2(kernel):
    source, weight = torch.randn(4, 8, 32, 32), torch.randn(12, 8, kernel, kernel)
    call = (aten.convolution.default, (source, weight, None, [2, 2], [2, 2], [1, 1], False, [0, 0], 1), {})
    real, _ = real_curve(*call)
    least, _ = predicted_curve(*call, size=lambda step: 0 if step.most else step.nbytes)
    most, _ = predicted_curve(*call, size=lambda step: step.most or step.nbytes)
    assert least <= real <= most


@avx2_machine
@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize(
    ("inputs", "kernel", "stride"), [(1, 3, 1), (2, 2, 2), (3, 3, 1), (4, 2, 2), (5, 3, 1), (8, 3, 1)]
)
def test_padded_volumes_are_matrix_products_on_avx2(inputs, kernel, stride, padding):
    source, weight = torch.randn(4, inputs, 8, 8, 8), torch.randn(8, inputs, *[kernel] * 3)
    rest = ([stride] * 3, [padding] * 3, [1] * 3, False, [0] * 3, 1)
    gradient = torch.randn_like(aten.convolution(source, weight, None, *rest))
    compare(aten.convolution_backward.default, gradient, source, weight, None, *rest, [False, True, False], slack=512)


TWO_TYPES = st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16])


@pytest.mark.filterwarnings("ignore:torch.searchsorted")
@settings(max_examples=25, deadline=None)
@given(first=TWO_TYPES, second=TWO_TYPES, turned=st.booleans())
def test_operands_of_any_two_types(first, second, turned):
    values = torch.rand(64, 48).to(first)
    values = values.t() if turned else values
    others, boundaries = torch.rand(values.shape).to(second), torch.linspace(0, 1, 300).to(second)
    compare(aten.bucketize.Tensor, values, boundaries)
    compare(aten.searchsorted.Tensor, boundaries, values, right=True)
    if since("2.13"):  # Torch 2.6 subtracts in place of the target, whose type the loss then has.
        weight = torch.rand(48 + 16 * turned).to(second)
        compare(aten.binary_cross_entropy_with_logits.default, values.contiguous(), others, None, None, 2)
        compare(aten.binary_cross_entropy_with_logits.default, values.contiguous(), others, None, weight, 0)
    compare(aten.ldexp.Tensor, values.contiguous(), others)
    for reduction in (0, 1, 2):
        compare(aten.mse_loss.default, values.contiguous(), others, reduction)
        compare(aten.smooth_l1_loss.default, values.contiguous(), others, reduction)
    compare(aten.dist.default, values.contiguous(), others)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_matrix_is_copied_to_the_type_of_two_vectors(dtype):
    compare(aten.addr.default, torch.rand(64, 48), torch.rand(64).to(dtype), torch.rand(48).to(dtype))


@pytest.mark.parametrize("func", [aten.mul.Tensor, aten.add.Tensor, aten.div.Tensor])
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.int32])
def test_integers_are_copied_to_the_type_of_a_number(func, dtype):
    compare(func, torch.ones(64, 32).to(dtype), 0.5)


@measured_machine
def test_each_thread_gathers_the_pixels_of_a_strided_pointwise_convolution():
    torch.set_num_threads(2)
    compare(aten.convolution.default, *convolution(4, 32, 20, 64, 1, stride=2))


def test_the_benchmark_measures_what_can_be_counted_by_hand():
    measure = benchmark("cpu_measure")

    def body():
        with torch.profiler.record_function(measure.STEP):
            weight = torch.empty(100, 50, requires_grad=True)  # 20,000 bytes
            source = torch.empty(10, 100)  # 4,000
            product = source @ weight  # 2,000
            loss = product.sum()  # 4
            del product  # autograd saves the sum's shape only
            kept = torch.empty(300)  # 1,200
            del kept
            # 4 of ones, which the sum's backward expands and the product's copies to 2,000; then 20,000 of gradient.
            loss.backward()

    figures = measure.summarize(*measure.run(body))
    assert figures["peak"] == 20_000 + 4_000 + 4 + 4 + 2_000 + 20_000
    assert figures["steps"] == [20_000 + 4_000 + 4 + 20_000]
    assert figures["end"] == 0
