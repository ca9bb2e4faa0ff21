"""Every op of a CPU step has a verdict: its scratch as the allocator reports it, nothing, or a name and a bound."""

from itertools import islice

import pytest
import torch

from memplan.hardware.catalog import load_profile
from memplan.job.load import load_source
from memplan.job.spec import FileTarget, JobSpec
from memplan.measure.local import estimate_here
from memplan.tracing.records import DeviceTraits
from memplan.tracing.run import trace_job
from memplan.tracing.scratch.cpu_lapack import ASK, WORK, lengths
from memplan.tracing.scratch.cpu_plain import MEASURED
from memplan.tracing.scratch.cpu_table import CPU_RULES, CPU_VERDICTS, not_examined, unexamined
from memplan.tracing.scratch.rules import Call
from tests.support.benchmarks import BENCHMARKS, benchmark
from tests.tracing.real_memory import peak, real_allocations
from tests.tracing.test_cpu_scratch import compare, real_curve

aten = torch.ops.aten
pytestmark = [
    pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="measured on torch 2.13"),
    pytest.mark.usefixtures("one_thread"),
]


def matrix(*shape, dtype=torch.float32):
    torch.manual_seed(0)
    return torch.randn(*shape, dtype=dtype)


def definite(size):
    """A symmetric matrix with positive eigenvalues, in row order."""
    made = matrix(size, size)
    return made @ made.T + size * torch.eye(size)


SHAPES = {"square": (70, 70), "tall": (90, 40), "wide": (40, 90), "batched": (3, 70, 40)}
TYPES = {"float": torch.float32, "double": torch.float64, "complex": torch.complex64}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
def test_qr(mode, shape, dtype):
    compare(aten.linalg_qr.default, matrix(*SHAPES[shape], dtype=TYPES[dtype]), mode)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_singular_values(shape, dtype):
    compare(aten._linalg_svd.default, matrix(*SHAPES[shape], dtype=TYPES[dtype]), False, True)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", [5, 70, 150])
def test_factors_of_square_matrices(size, dtype):
    square = matrix(size, size, dtype=TYPES[dtype])
    hermitian = square + square.mH
    compare(aten._linalg_eigh.default, hermitian, "L", True)
    compare(aten._linalg_eigh.default, hermitian, "L", False)
    compare(aten.linalg_eig.default, square, slack=4 * size)
    compare(aten.linalg_inv_ex.default, square, slack=4 * size)
    compare(aten.linalg_lu.default, square)
    compare(aten._linalg_det.default, square, slack=4 * size)
    compare(aten.linalg_ldl_factor_ex.default, hermitian)
    compare(aten.geqrf.default, square)
    reflectors, factors = torch.geqrf(square)
    compare(aten.linalg_householder_product.default, reflectors, factors)
    compare(aten.ormqr.default, reflectors, factors, square[:, :3].contiguous())


@pytest.mark.parametrize("size", [5, 70])
def test_solutions(size):
    compare(aten._cholesky_solve_helper.default, matrix(size, 3), definite(size), False)
    compare(aten.linalg_solve_triangular.default, definite(size), matrix(size, 3), upper=True)


WAYS = {
    "as it is": lambda made: made,
    "conjugated": lambda made: made.conj(),
    "turned": lambda made: made.mT.contiguous().mT,
    "both": lambda made: made.mH.contiguous().mH,
    "strided": lambda made: torch.stack([made, made], -1)[..., 0],
    "strided conjugate": lambda made: torch.stack([made, made], -1)[..., 0].conj(),
}


def operand(way, *shape, dtype=torch.complex64):
    return WAYS[way]((9 * matrix(*shape)).to(dtype))


def compare_products(left, right, shape, *, batch=(), dtype=torch.complex64):
    rows, inner, columns = shape
    first = operand(left, *batch, rows, inner, dtype=dtype)
    second = operand(right, *batch, inner, columns, dtype=dtype)
    beside = operand("as it is", *batch, rows, columns, dtype=dtype)
    single, added, into = ("bmm", "baddbmm", "baddbmm_") if batch else ("mm", "addmm", "addmm_")
    compare(getattr(aten, single).default, first, second)
    compare(getattr(aten, added).default, beside, first, second)
    compare(getattr(aten, into).default, beside, first, second)
    if batch and not (first.is_conj() or second.is_conj()):  # the dispatcher copies conjugates before the op
        compare(aten.addbmm.default, beside[0], first, second)
    if not batch:
        compare(aten.addmm_.default, operand("turned", rows, columns, dtype=dtype), first, second)
        compare(aten.addmm_.default, operand("strided", rows, columns, dtype=dtype), first, second)


@pytest.mark.parametrize("batch", [(), (3,)], ids=["single", "batch"])
@pytest.mark.parametrize("way", ["conjugated", "both", "strided conjugate"])
def test_products_copy_conjugates_that_blas_cannot_take(way, batch):
    compare_products(way, "as it is", (20, 50, 30), batch=batch)
    compare_products("as it is", way, (20, 50, 30), batch=batch)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.float64, torch.int32])
@pytest.mark.parametrize("right", WAYS)
@pytest.mark.parametrize("left", WAYS)
def test_products_copy_what_blas_cannot_take(left, right, dtype):
    for batch in ((), (3,)):
        for shape in ((40, 50, 30), (40, 50, 1), (1, 50, 30), (40, 1, 30), (4, 3, 5), (4, 0, 5)):
            compare_products(left, right, shape, batch=batch, dtype=dtype)


def test_the_library_is_asked_as_kernels_ask_it():
    assert lengths("geqrf", torch.float32, 64, 32, None, 64, None, WORK, ASK).work >= 32
    assert lengths("none", torch.float32) is None


image = torch.randn(4, 3, 20, 24)
indices = torch.randint(0, 8, (30, 20))
complex_matrix = torch.randn(30, 40, dtype=torch.complex64)
OTHERS = {
    "unfold": (aten.im2col.default, image, [3, 3], [1, 1], [0, 0], [1, 1]),
    "unfold, channels last": (
        aten.im2col.default,
        image.contiguous(memory_format=torch.channels_last),
        *([3, 3], [1, 1], [0, 0], [1, 1]),
    ),
    "fold of what is turned": (
        aten.col2im.default,
        torch.randn(4, 396, 27).mT,
        [20, 24],
        [3, 3],
        [1, 1],
        [0, 0],
        [1, 1],
    ),
    "kth value": (aten.kthvalue.default, torch.randn(30, 40), 3),
    "sums of integers": (aten.cumsum.default, torch.ones(30, 40, dtype=torch.bool), 0),
    "roots of integers": (aten.sqrt.default, torch.ones(30, 40, dtype=torch.int32)),
    "narrow indices": (aten.gather.default, torch.randn(30, 20), 0, indices.int()),
    "wide indices": (aten.gather.default, torch.randn(30, 20), 0, indices),
    "distance": (aten.dist.default, torch.randn(30, 40), torch.randn(40)),
    "roll": (aten.roll.default, torch.randn(30, 40), [1, 2], [0, 1]),
    "histogram": (aten.histc.default, torch.rand(300), 100, 0, 1),
    "lower triangles of a cut batch": (aten.tril.default, torch.randn(3, 20, 24)[:, :, :20]),
    "scattered means": (aten.scatter_reduce.two, torch.randn(30, 20), 0, indices, torch.randn(30, 20), "mean"),
    "linear in one dimension": (aten.upsample_linear1d.default, torch.randn(2, 3, 40), [90], True),
    "cubic": (aten.upsample_bicubic2d.default, image, [90, 70], True),
    "linear in three dimensions": (aten.upsample_trilinear3d.default, torch.randn(1, 2, 8, 8, 8), [20, 20, 20], True),
    "smoothed": (aten._upsample_bilinear2d_aa.default, image, [10, 12], False),
    "transform of the last dimension": (aten._fft_r2c.default, torch.randn(8, 10, 32), [2], 0, True),
    "transform of a middle one": (aten._fft_c2c.default, torch.randn(8, 10, 32, dtype=torch.complex64), [1], 0, True),
    "transform back": (aten._fft_c2r.default, torch.randn(8, 10, 17, dtype=torch.complex64), [1, 2], 0, 32),
    "norm in another type": (aten.linalg_vector_norm.default, torch.randn(30, 40), 2, [0], False, torch.float64),
    "transform of two dimensions back": (
        aten._fft_c2r.default,
        torch.randn(9, 12, 8, dtype=torch.complex64).permute(2, 1, 0),
        *([1, 2], 2, 16),
    ),
    "median along rows apart": (aten.median.dim, torch.randn(30, 50), 0),
    "median of all": (aten.nanmedian.default, torch.randn(30, 50)),
    "phase": (aten.angle.default, complex_matrix),
    "variance of complex numbers": (aten.var.correction, complex_matrix, [1]),
    "their variance and mean": (aten.std_mean.correction, complex_matrix, [1]),
    "largest of complex numbers": (aten.linalg_vector_norm.default, complex_matrix, float("inf"), [1], False, None),
    "norms of complex tensors": (aten._foreach_norm.Scalar, [complex_matrix, complex_matrix], float("inf")),
    "comparison of two types": (aten.gt.Tensor, torch.randn(30, 40), torch.randn(30, 40, dtype=torch.float64)),
    "comparison with a fraction": (aten.gt.Scalar, torch.ones(30, 40, dtype=torch.int32), 1.5),
    "choice of two types": (aten.where.self, torch.rand(30, 40) > 0, torch.randn(30, 40), torch.randn(30, 40).double()),
    "narrow sums in place": (aten.add_.Tensor, torch.randn(30, 40).bfloat16(), torch.randn(30, 40)),
    "two types in a row": (aten.cat.default, [torch.randn(30, 40), torch.randn(20, 40).double(), torch.randn(5, 40)]),
    "one type in a row": (aten.cat.default, [torch.randn(30, 40).t(), torch.randn(40, 20)], 1),
    "two types on top": (aten.stack.default, [torch.randn(30, 40).bfloat16(), torch.randn(30, 40)], 1),
    "an imaginary number": (aten.mul.Scalar, torch.randn(30, 40), 1j),
    "half gathered": (aten.gather.default, torch.randn(30, 20).bfloat16(), 0, indices),
    "half scattered": (aten.scatter_add.default, torch.randn(30, 20).bfloat16(), 0, indices, indices.bfloat16()),
    "half means scattered": (
        *(aten.scatter_reduce.two, torch.randn(30, 20).bfloat16(), 0),
        *(indices, indices.bfloat16(), "mean"),
    ),
    "half sums of two dimensions": (aten.sum.dim_IntList, torch.randn(5, 10, 5, 20).bfloat16(), [0, 2]),
    "half sums of neighbours": (aten.sum.dim_IntList, torch.randn(5, 10, 5, 20).bfloat16(), [0, 1]),
    "half losses": (aten.mse_loss.default, torch.randn(30, 40).bfloat16(), torch.randn(30, 40).bfloat16()),
    "half losses of logits": (
        *(aten.binary_cross_entropy_with_logits.default, torch.randn(30, 40).bfloat16()),
        torch.rand(30, 40).bfloat16(),
    ),
    "repeated": (aten.repeat.default, torch.randn(30, 40), [2, 3, 2]),
    "windows backward": (aten.unfold_backward.default, torch.randn(30, 9, 4), [30, 20], 1, 4, 2),
    "counted along a dimension": (aten.count_nonzero.dim_IntList, torch.randn(30, 40), [1]),
    "solution for a vector": (aten._linalg_solve_ex.default, definite(40), torch.randn(40)),
    "solution": (aten._linalg_solve_ex.default, definite(40), torch.randn(40, 3)),
    **{
        f"gradient of images, {name}": (func, made, [16, 16], [2, 3, 8, 8], *rest)
        for name, made in {
            "row-major": torch.randn(2, 3, 16, 16),
            "channels last": torch.randn(2, 3, 16, 16).contiguous(memory_format=torch.channels_last),
            "one number": torch.ones(()).expand(2, 3, 16, 16),
        }.items()
        for func, rest in (
            (aten.upsample_nearest2d_backward.default, ()),
            (aten.upsample_bicubic2d_backward.default, (False,)),
        )
    },
    "gradient of volumes": (
        aten.upsample_nearest3d_backward.default,
        torch.randn(2, 3, 8, 8, 8).contiguous(memory_format=torch.channels_last_3d),
        *([8, 8, 8], [2, 3, 4, 4, 4]),
    ),
    "a matrix turned around": (aten.clone.default, torch.randn(70, 80).T, torch.contiguous_format),
}


@pytest.mark.parametrize("case", OTHERS.values(), ids=OTHERS)
def test_other_kernels(case):
    func, *arguments = case
    keywords = {"memory_format": arguments.pop()} if func is aten.clone.default else {}
    if func is aten.linalg_vector_norm.default:
        keywords = {"dtype": arguments.pop()}
    # A number becomes a tensor of 8 or 16 bytes, and is cast.
    compare(func, *arguments, slack=24, **keywords)


def convolution(
    dims, batch, inputs, size, outputs, kernel, *, stride=1, groups=1, transposed=False, dilation=1, **kind
):
    source = torch.randn(batch, inputs, *[size] * dims, **kind)
    first, second = (inputs, outputs // groups) if transposed else (outputs, inputs // groups)
    weight, bias = torch.randn(first, second, *[kernel] * dims, **kind), torch.randn(outputs, **kind)
    padding = 0 if kernel == 1 else kernel // 2
    pairs = ([stride] * dims, [padding] * dims, [dilation] * dims, transposed, [0] * dims, groups)
    return source, weight, bias, *pairs


@pytest.mark.parametrize("width", [8, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("whole", [True, False], ids=["one index a row", "one index an element"])
def test_rows_that_are_scattered_and_gathered(whole, dtype, width):
    source = torch.randn(64, width).to(dtype)
    index = (torch.arange(64) // 2)[:, None].expand(64, width)
    index = index if whole else index.contiguous()
    compare(aten.gather.default, source, 0, index)
    compare(aten.scatter_add.default, torch.zeros_like(source), 0, index, source)
    compare(aten.scatter_add_.default, torch.zeros_like(source), 0, index, source)
    for reduction in ("mean", "amax", "sum"):
        compare(aten.scatter_reduce.two, torch.zeros_like(source), 0, index, source, reduction)


@pytest.mark.parametrize("mode", [0, 1, 2], ids=["sum", "mean", "max"])
def test_gradients_of_bags(mode):
    weight, indices, offsets = torch.randn(50, 24), torch.randint(50, (320,)), torch.arange(0, 320, 8)
    out, *kept = aten._embedding_bag.default(weight, indices, offsets, False, mode)
    for gradient in (torch.randn_like(out), torch.randn(24, 40).T):
        compare(aten._embedding_bag_backward.default, gradient, indices, offsets, *kept, 50, False, mode, False, None)


def test_rows_that_are_scattered_from_a_turned_matrix_are_not_sorted():
    source = torch.randn(40, 64).T.bfloat16()
    index = (torch.arange(64) // 2)[:, None].expand(64, 40)
    compare(aten.scatter_add.default, torch.zeros(64, 40).bfloat16(), 0, index, source)
    compare(aten.gather.default, source, 0, index)
    compare(aten.scatter_add.default, torch.zeros(64, 40).bfloat16(), 1, index % 40, torch.randn(64, 40).bfloat16())


DOUBLE = {"dtype": torch.float64}
OWN_CONVOLUTIONS = {
    "plain": convolution(2, 8, 16, 20, 24, 3, **DOUBLE),
    "dilated": convolution(2, 8, 16, 20, 24, 3, dilation=2, **DOUBLE),
    "grouped": convolution(2, 8, 16, 20, 24, 3, groups=4, **DOUBLE),
    "transposed": convolution(2, 8, 16, 10, 8, 2, stride=2, transposed=True, **DOUBLE),
    "volumes": convolution(3, 4, 4, 8, 8, 3, **DOUBLE),
    "pointwise volumes": convolution(3, 8, 4, 8, 2, 1, **DOUBLE),
    "in one dimension": convolution(1, 8, 16, 60, 24, 3, **DOUBLE),
}
AVX2_CONVOLUTIONS = {
    "one channel": convolution(2, 8, 1, 28, 32, 3),
    "two channels": convolution(2, 8, 2, 28, 32, 3),
    "three channels": convolution(2, 8, 3, 28, 32, 3),
    "transposed to odd rows": convolution(2, 8, 12, 14, 6, 3, stride=2, transposed=True),
    "volumes": convolution(3, 8, 8, 16, 16, 3),
    "volumes, transposed": convolution(3, 8, 8, 12, 4, 2, stride=2, transposed=True),
    "volumes of few channels": convolution(3, 4, 4, 12, 16, 2, stride=2),
    "grouped": convolution(2, 8, 32, 28, 32, 3, groups=4),
    "grouped, transposed": convolution(2, 8, 32, 14, 32, 3, stride=2, groups=4, transposed=True),
    "narrow groups, transposed": convolution(2, 8, 16, 14, 16, 3, stride=2, groups=4, transposed=True),
}


def gradients(arguments):
    source, weight, bias, *rest = arguments
    return torch.randn_like(aten.convolution(*arguments)), source, weight, list(bias.shape), *rest, [True] * 3


@pytest.mark.parametrize("arguments", OWN_CONVOLUTIONS.values(), ids=OWN_CONVOLUTIONS)
def test_convolutions_that_onednn_does_not_serve(arguments):
    # Sums of the bias are small and left out.
    compare(aten.convolution.default, *arguments)
    compare(aten.convolution_backward.default, *gradients(arguments), slack=1024)


@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() != "AVX2", reason="as measured on AVX2")
@pytest.mark.parametrize("arguments", AVX2_CONVOLUTIONS.values(), ids=AVX2_CONVOLUTIONS)
def test_convolutions_on_avx2(arguments):
    compare(aten.convolution.default, *arguments)
    compare(aten.convolution_backward.default, *gradients(arguments), slack=512)


def test_what_nobody_examined_is_named_and_bounded():
    assert CPU_VERDICTS.get("aten.relu.default") is None
    assert CPU_VERDICTS.get("aten.relu_.default") is None
    assert CPU_VERDICTS.get("my_kernels.fused.default") is unexamined
    assert not_examined(["aten.relu.default", "my_kernels.fused.default"]) == ("my_kernels.fused.default",)


def operator_of(name):
    return name.split(".")[1].rstrip("_")


def is_measured(name):
    """Is an op plain, and no bookkeeping?"""
    return CPU_VERDICTS.get(name) is None and (operator_of(name) in MEASURED or "_foreach_" in name)


def test_plain_ops_were_measured_and_took_nothing():
    lines = (BENCHMARKS / "results" / "cpu_verdicts.csv").read_text().splitlines()[1:]
    rows = [line.split(",") for line in lines]
    took = {name for name, _, calls, differ in rows if is_measured(name) and int(differ)}
    assert took == set()
    met = {operator_of(name) for name, _, calls, _ in rows if int(calls)}
    ruled = {operator_of(name) for name in CPU_RULES}
    assert MEASURED - met - ruled == set()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64], ids=str)
@pytest.mark.parametrize("part", range(1, 13))
def test_plain_ops_take_nothing(part, dtype):
    sweep = benchmark("cpu_verdicts")
    samples = sweep.found([], dtype, 5, (part, 12))
    took = {}
    while chunk := tuple(islice(samples, sweep.CHUNK)):
        took |= {
            each.name: each.arguments for each in sweep.watched(chunk) if is_measured(each.name) and sweep.differs(each)
        }
    assert took == {}


PROGRAM = """
import torch
import torch.nn.functional as F
from torch import nn

def batch(batch_size):
    return torch.randn(batch_size, 12, 16)

def loss(output, batch):
    return output.square().mean()
"""
PROGRAMS = {
    "packed": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(16, 32, batch_first=True)
    def forward(self, x):
        lengths = torch.tensor([12, 5, 9, 12, 1, 7, 3, 8])
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0]
""",
    "anomaly": """
class Model(nn.Linear):
    def __init__(self):
        super().__init__(16, 300)
    def forward(self, x):
        with torch.autograd.detect_anomaly(check_nan=True):
            return super().forward(x).relu()
""",
    "ctc": """
class Model(nn.Linear):
    def __init__(self):
        super().__init__(16, 30)
    def forward(self, x):
        scores = super().forward(x).log_softmax(-1).transpose(0, 1)
        targets = torch.randint(1, 30, (8, 4))
        return F.ctc_loss(scores, targets, torch.full((8,), 12), torch.full((8,), 4))
""",
    "least squares": """
class Model(nn.Linear):
    def __init__(self):
        super().__init__(16, 10)
    def forward(self, x):
        return torch.linalg.lstsq(super().forward(x), x).solution
""",
    "complex products": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 64, dtype=torch.complex64))
    def forward(self, x):
        hidden = (x + 0j) @ self.weight
        return (hidden @ hidden.mH).abs() * torch.view_as_real(hidden.conj_physical()).sum() + hidden.angle().sum()
""",
    "filter of frequencies": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(32, 32, 7, dtype=torch.complex64))
        self.lift = nn.Linear(16, 32)
    def forward(self, x):
        frequencies = torch.fft.rfft(self.lift(x).transpose(1, 2))
        return torch.fft.irfft(torch.einsum("bix,iox->box", frequencies, self.weight), n=12)
""",
    "filter of two frequencies": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(12, 9, dtype=torch.complex64))
    def forward(self, x):
        return torch.fft.irfft2(torch.fft.rfft2(x, norm="ortho") * self.weight, s=(12, 16), norm="ortho")
""",
    "unfolded": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(9, 20))
    def forward(self, x):
        return F.unfold(x.unsqueeze(1), 3).transpose(1, 2) @ self.weight
""",
    "volumes": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv3d(1, 8, 3, padding=1), nn.ReLU(), nn.ConvTranspose3d(8, 4, 2, 2), nn.Conv3d(4, 1, 1)
        )
    def forward(self, x):
        return self.layers(x.view(8, 1, 3, 8, 8).repeat(1, 1, 4, 2, 2))
""",
    "tied words": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.rnn, self.head = nn.Embedding(3000, 32), nn.LSTM(32, 32, 2, dropout=0.2), nn.Linear(32, 3000)
        self.head.weight = self.words.weight
    def forward(self, x):
        tokens = x[:, :, 0].long().abs()
        return F.cross_entropy(self.head(self.rnn(self.words(tokens))[0]).flatten(0, 1), tokens.flatten())
""",
    "reflectors": """
class Model(nn.Sequential):
    def __init__(self):
        super().__init__(nn.utils.parametrizations.orthogonal(nn.Linear(16, 64)), nn.ReLU(), nn.Linear(64, 8))
""",
    "cayley": """
class Model(nn.Sequential):
    def __init__(self):
        square = nn.utils.parametrizations.orthogonal(nn.Linear(16, 16), orthogonal_map="cayley")
        super().__init__(square, nn.ReLU(), nn.Linear(16, 8))
""",
}


_BOUNDED = "its work space is known between bounds only"
NAMED = {"packed": (f"aten._pack_padded_sequence.default: {_BOUNDED}",)}
"""Program → what its report names."""
if "AVX512" in torch.backends.cpu.get_cpu_capability():
    NAMED["volumes"] = (f"aten.convolution_backward.default: {_BOUNDED}",)


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_take_what_the_allocator_gives_them(name, tmp_path):
    target = tmp_path / "target.py"
    target.write_text(PROGRAM + PROGRAMS[name] + "\ndef model():\n    return Model()\n")
    spec = JobSpec(target=FileTarget(path=target), batch_size=8, optimizer="sgd")
    trace = trace_job(lambda: load_source(spec), spec, DeviceTraits(kind="cpu"))
    sizes = [trace.storages[event.storage].nbytes * (1 if event.action == "alloc" else -1) for event in trace.events]
    real = peak(real_allocations(lambda: _trained(target)))
    assert peak(sizes) == pytest.approx(real, rel=0.001)
    assert trace.not_modelled == NAMED.get(name, ())


def test_a_parametrization_by_an_exponential_is_within_its_interval(tmp_path):
    """Its degree goes by the weights, which begin where the lowest is enough."""
    target = tmp_path / "target.py"
    made = "nn.Sequential(nn.utils.parametrizations.orthogonal(nn.Linear(16, 16)), nn.ReLU(), nn.Linear(16, 8))"
    target.write_text(f"{PROGRAM}\ndef model():\n    return {made}\n")
    spec = JobSpec(target=FileTarget(path=target), batch_size=8, optimizer="sgd")
    (answer,) = estimate_here(spec, [load_profile("cpu")], advice=False)
    real = peak(real_allocations(lambda: _trained(target)))
    assert answer.peak.low_bytes <= real <= answer.peak.high_bytes < 2 * real
    assert any("matrix_exp" in sentence for sentence in answer.assumptions)


def _trained(target):
    """The documented loop, for real."""
    names = {}
    exec(target.read_text(), names)
    model = names["model"]().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        batch = None
        batch = names["batch"](8)
        output = model(batch)
        loss = names["loss"](output, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer, output, loss, batch


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("norm", [0.0, 0.1, 3.0, 30.0])
@pytest.mark.parametrize("shape", [(3, 40, 40), (2, 4, 40, 40)])
def test_exponentials_of_batches_take_the_same_at_every_norm(dtype, norm, shape):
    made = matrix(*shape, dtype=TYPES[dtype])
    made = made * (norm / made.abs().sum(-2).max())
    # Norms, scales and the sorted order of each matrix.
    compare(aten.linalg_matrix_exp.default, made, slack=24 * made.shape[:-2].numel())


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("norm", [2.0, 30.0])
def test_the_exponential_of_a_matrix_of_a_large_norm(dtype, norm):
    made = matrix(40, 40, dtype=TYPES[dtype])
    compare(aten.linalg_matrix_exp.default, made * (norm / made.abs().sum(-2).max()), slack=64)


def test_a_batch_of_exponentials_of_many_norms_stays_within_its_bound():
    made = matrix(16, 40, 40)
    made = made / made.abs().sum(-2).amax(-1)[:, None, None] * torch.pow(2.0, torch.arange(16))[:, None, None]
    real = peak(real_allocations(lambda: torch.linalg.matrix_exp(made)))
    call = Call(
        name="aten.linalg_matrix_exp.default", args=(made,), kwargs={}, out=made, device=DeviceTraits(kind="cpu"),
        in_backward=False, is_host=lambda _: False,
    )  # fmt: skip
    script = CPU_VERDICTS[call.name](call)
    held = [step for step in script.before if step.key != "powers" and step.action == "alloc"]
    result = made.numel() * made.element_size()
    least, most = (
        sum(size(step) for step in held) + result for size in (lambda s: s.nbytes, lambda s: s.most or s.nbytes)
    )
    assert least < real <= most


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("norm", [1e-9, 1e-4, 1e-2, 0.1, 0.5, 1.0, 2.0, 40.0])
def test_exponentials_of_known_norm(norm, dtype):
    matrix = torch.zeros(64, 64, dtype=dtype)
    matrix[0, 0] = norm
    real, _ = real_curve(aten.linalg_matrix_exp.default, (matrix,), {})
    call = Call(
        name="aten.linalg_matrix_exp.default",
        args=(matrix,),
        kwargs={},
        out=matrix.clone(),
        device=DeviceTraits(kind="cpu"),
        in_backward=False,
        is_host=lambda _: False,
        heard=lambda: norm,
    )
    script = CPU_VERDICTS["aten.linalg_matrix_exp.default"](call)
    assert matrix.nbytes + sum(line.nbytes for line in script.lines) == pytest.approx(real, abs=64)
