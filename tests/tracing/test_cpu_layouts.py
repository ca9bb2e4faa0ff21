"""Results lie in the trace as the CPU's kernels lay them out, whatever the layouts of the operands."""

from itertools import product

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from memplan.tracing.cpu_layouts import LAYOUTS
from memplan.tracing.cpu_ways import cpu_ways
from memplan.tracing.cuda.release import since
from memplan.tracing.expanded import iterated

aten = torch.ops.aten
LAYOUT_OF_ROWS = {
    "row-major": lambda: torch.rand(2, 3, 4),
    "turned": lambda: torch.rand(2, 4, 3).transpose(1, 2),
    "batch inside": lambda: torch.rand(3, 2, 4).transpose(0, 1),
    "expanded": lambda: torch.rand(2, 3, 1).expand(2, 3, 4),
    "every other": lambda: torch.rand(2, 3, 8)[..., ::2],
}
ALL = [True] * 3


def layer_norm_backward(gradient, source):
    mean = torch.rand(2, 3, 1)
    return aten.native_layer_norm_backward(gradient, source, [4], mean, mean, torch.rand(4), torch.rand(4), ALL)


OF_ROWS = {
    "native_layer_norm_backward": (2, layer_norm_backward),
    "mse_loss_backward": (3, lambda g, x, y: aten.mse_loss_backward(g, x, y, 0)),
    "smooth_l1_loss_backward": (3, lambda g, x, y: aten.smooth_l1_loss_backward(g, x, y, 0, 1.0)),
    "huber_loss_backward": (3, lambda g, x, y: aten.huber_loss_backward(g, x, y, 0, 1.0)),
    "soft_margin_loss_backward": (3, lambda g, x, y: aten.soft_margin_loss_backward(g, x, y, 0)),
    "soft_margin_loss": (2, lambda x, y: aten.soft_margin_loss(x, y, 0)),
    "soft_margin_loss of two types": (2, lambda x, y: aten.soft_margin_loss(x.bfloat16(), y)),
    "soft_margin_loss_backward of two types": (3, lambda g, x, y: aten.soft_margin_loss_backward(g, x, y.double(), 0)),
    "mse_loss_backward of two types": (3, lambda g, x, y: aten.mse_loss_backward(g, x.bfloat16(), y, 0)),
    "smooth_l1_loss_backward of two types": (3, lambda g, x, y: aten.smooth_l1_loss_backward(g, x.half(), y, 0, 1.0)),
    "binary_cross_entropy_backward": (3, aten.binary_cross_entropy_backward),
    "_log_softmax_backward_data": (2, lambda g, x: aten._log_softmax_backward_data(g, x, 1, torch.float32)),
    "_softmax_backward_data": (2, lambda g, x: aten._softmax_backward_data(g, x, 1, torch.float32)),
    "copysign.Tensor": (2, aten.copysign.Tensor),
    "special_xlog1py": (2, aten.special_xlog1py.default),
    "xlogy.Tensor": (2, aten.xlogy.Tensor),
    "floor_divide": (2, aten.floor_divide.default),
    "floor_divide by a number": (1, lambda x: aten.floor_divide(x, 2.0)),
    "elu_backward": (2, lambda g, x: aten.elu_backward(g, 1.0, 1.0, 1.0, False, x)),
    "hardsigmoid_backward": (2, aten.hardsigmoid_backward),
    "hardswish_backward": (2, aten.hardswish_backward),
    "hardtanh_backward": (2, lambda g, x: aten.hardtanh_backward(g, x, -1, 1)),
    "logit_backward": (2, lambda g, x: aten.logit_backward(g, x, 0.1)),
    "softplus_backward": (2, lambda g, x: aten.softplus_backward(g, x, 1.0, 20.0)),
    "native_dropout_backward": (2, lambda g, x: aten.native_dropout_backward(g, x > 0.5, 2.0)),
    "log_sigmoid_forward": (1, aten.log_sigmoid_forward),
    "normal.float_Tensor": (1, lambda x: aten.normal.float_Tensor(0.0, x)),
    "poisson": (1, aten.poisson),
    "_standard_gamma": (1, aten._standard_gamma),
    "angle": (2, lambda x, y: aten.angle(torch.complex(x, y))),
    "angle of numbers": (1, aten.angle),
    "angle of integers": (1, lambda x: aten.angle((x * 4).int())),
    "pow.Scalar": (1, lambda x: aten.pow.Scalar(2, x)),
    "pow.Scalar of integers": (1, lambda x: aten.pow.Scalar(2, (x * 4).int())),
}
"""Op → how many operands, and a call."""


@pytest.fixture(scope="module", autouse=True)
def as_on_the_cpu():
    with cpu_ways():
        yield


def of_images(dimensions, layout, *shape):
    made = torch.rand(2, 8, *shape)
    channels_last = {2: torch.channels_last, 3: torch.channels_last_3d}[dimensions]
    return made.contiguous(memory_format=channels_last) if layout == "channels last" else made


def compare(call, operands):
    real = call(*operands)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = call(*tree_map_only(torch.Tensor, mode.from_tensor, operands))
    described = [[(t.shape, t.stride(), t.dtype) for t in tree_leaves(result)] for result in (fake, real)]
    assert described[0] == described[1]


REFUSED = {"mse_loss_backward of two types"}
"""By the kernels of torch 2.6."""


@pytest.mark.parametrize("name", [each for each in OF_ROWS if each not in REFUSED or since("2.13")])
def test_rows_lie_as_the_kernel_lays_them(name):
    count, call = OF_ROWS[name]
    # Three operands in three layouts each tell whose layout it is.
    layouts_of_one = list(LAYOUT_OF_ROWS)[: 3 if count > 2 else None]
    for layouts in product(layouts_of_one, repeat=count):
        compare(call, [LAYOUT_OF_ROWS[layout]() for layout in layouts])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("hermitian", [False, True])
def test_a_pseudo_inverse_under_autocast_has_the_type_of_its_product(dtype, hermitian):
    def call(matrix):
        with torch.autocast("cpu", torch.bfloat16):
            return torch.linalg.pinv(matrix, hermitian=hermitian)

    compare(call, [torch.rand(3, 4, 4, dtype=dtype)])


@pytest.mark.parametrize("kind", ["reflection_pad", "replication_pad"])
@pytest.mark.parametrize("dimensions", [2, 3])
def test_padded_images_lie_as_the_kernel_lays_them(kind, dimensions):
    sides, padding = [6, 7, 8][:dimensions], [1, 2] * dimensions
    forward = getattr(aten, f"{kind}{dimensions}d").default
    backward = getattr(aten, f"{kind}{dimensions}d_backward").default
    for layout, other in product(("row-major", "channels last"), repeat=2):
        source = of_images(dimensions, layout, *sides)
        compare(lambda x: forward(x, padding), [source])
        gradient = of_images(dimensions, other, *[side + 3 for side in sides])
        compare(lambda g, x: backward(g, x, padding), [gradient, source])


@pytest.mark.parametrize("layout", ["row-major", "channels last"])
def test_shuffled_images_lie_as_their_source(layout):
    compare(lambda x: aten.channel_shuffle(x, 2), [of_images(2, layout, 6, 7)])


def rectified(source):
    return aten.rrelu_with_noise(source, torch.empty_like(source), 0.1, 0.3, True)


def unpooled(source):
    return aten.max_unpool2d(*aten.max_pool2d_with_indices(source, [2, 2]), [6, 8])


def group_norm_backward(gradient, source):
    mean = torch.rand(2, 2)
    return aten.native_group_norm_backward(gradient, source, mean, mean, torch.rand(8), 2, 8, 48, 2, ALL)


OF_IMAGES = {
    "native_group_norm_backward": (2, group_norm_backward),
    "max_unpool2d": (1, unpooled),
    "roll": (1, lambda x: aten.roll(x, [1, 2], [1, 3])),
    "roll of all": (1, lambda x: aten.roll(x, [1])),
    "rrelu_with_noise": (1, rectified),
    "glu_backward": (2, lambda g, x: aten.glu_backward(g[:, :4], x, 1)),
    "log_sigmoid_backward": (3, aten.log_sigmoid_backward),
}


@pytest.mark.parametrize("name", OF_IMAGES)
def test_images_lie_as_the_kernel_lays_them(name):
    count, call = OF_IMAGES[name]
    for layouts in product(("row-major", "channels last"), repeat=count):
        compare(call, [of_images(2, layout, 6, 8) for layout in layouts])


def test_every_op_of_the_table_is_compared():
    padding = {
        f"{kind}_pad{n}d{way}" for kind in ("reflection", "replication") for n in (2, 3) for way in ("", "_backward")
    }
    assert set(LAYOUTS) <= set(OF_ROWS) | set(OF_IMAGES) | padding | {"channel_shuffle"}


ELEMENTWISE = (
    aten.add.Tensor,
    aten.mul.Tensor,
    aten.div.Tensor,
    aten.maximum,
    aten.gt.Tensor,
    aten.silu_backward,
    aten.gelu_backward,
    aten.hardswish_backward,
    aten.threshold_backward,
    aten.masked_fill.Scalar,
    aten.floor_divide,
)
LAYOUT_OF_IMAGES = {
    "channels last": lambda dtype: torch.rand(2, 3, 4, 5).to(dtype, memory_format=torch.channels_last),
    "row-major": lambda dtype: torch.rand(2, 3, 4, 5).to(dtype),
    "turned": lambda dtype: torch.rand(5, 4, 3, 2).to(dtype).permute(3, 2, 1, 0),
    "one number": lambda dtype: torch.rand(()).to(dtype).expand(2, 3, 4, 5),
    "one a channel": lambda dtype: torch.rand(2, 3, 1, 1).to(dtype).expand(2, 3, 4, 5),
    "one image": lambda dtype: torch.rand(3, 4, 5).to(dtype).expand(2, 3, 4, 5),
}


class AsTraced(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return iterated(func, args, func(*args, **kwargs or {}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("op", ELEMENTWISE, ids=str)
def test_expanded_operands_do_not_decide_how_a_result_lies(op, dtype):
    """The gradient of a sum is one number expanded."""

    def call(first, second):
        operands = [first(dtype), second(dtype)]
        if op is aten.masked_fill.Scalar:
            return op(operands[0], operands[1] > 0.5, 0)
        return op(*operands, *((0,) if op is aten.threshold_backward else ()))

    for names in product(LAYOUT_OF_IMAGES, repeat=2):
        makers = [LAYOUT_OF_IMAGES[name] for name in names]
        real = call(*makers)
        with FakeTensorMode(), AsTraced():
            traced = call(*makers)
        assert traced.stride() == real.stride(), names
