"""Scratch of CPU kernels that cast, repeat or split their operands: what TensorIterator and small loops keep aside.

Each rule names the file under aten/src/ATen/native that it follows. Sizes are those of torch.profiler's events on
torch 2.13.0, over torch's own samples of its operators (``benchmarks/cpu_verdicts.py``), November 2026.
"""

import torch

from memplan.trace.scratch.cpu_shapes import INDEX_BYTES, allocations, argument, nbytes, product
from memplan.trace.scratch.rules import Call, Rule, Scratch, Script, within


def _cast(position: int) -> Rule:
    def rule(call: Call) -> Script | None:
        """aten/src/ATen/TensorIterator.cpp: on CPU an operand of another type is copied to the result's first."""
        source, out = call.args[position], call.out
        if source.dtype is out.dtype or not out.dtype.is_floating_point:
            return None
        return allocations({"cast": source.numel() * out.element_size()})

    return rule


def cumulated(call: Call) -> Script | None:
    """ReduceOps.cpp cumsum_cpu_kernel, cumprod: the source in the result's type."""
    source, out = call.args[0], call.out
    return None if source.dtype is out.dtype else within({"cast": nbytes(out)})


def vector_norm(call: Call) -> Script | None:
    """LinearAlgebra.cpp linalg_vector_norm: the source in the type that is asked for."""
    source, wanted = call.args[0], argument(call, 4, "dtype")
    if wanted is None or wanted is source.dtype:
        return None
    return within({"cast": source.numel() * call.out.element_size()})


def kth_value(call: Call) -> Script:
    """Sorting.cpp kthvalue_out_impl_cpu: a copy that is sorted in place, and its indices."""
    source = call.args[0]
    return within({"copy": nbytes(source), "indices": source.numel() * INDEX_BYTES})


def _indices(position: int) -> Rule:
    def rule(call: Call) -> Script | None:
        """TensorAdvancedIndexing.cpp: indices of 4 bytes become those of 8."""
        index = call.args[position]
        return within({"indices": index.numel() * INDEX_BYTES}) if index.dtype is torch.int32 else None

    return rule


def power_of_two(call: Call) -> Script:
    """BinaryOps.cpp ldexp: the power itself."""
    return allocations({"power": call.args[1].numel() * call.out.element_size()})


def distance(call: Call) -> Script:
    """Distance.cpp dist: the difference, before its norm."""
    shape = torch.broadcast_shapes(call.args[0].shape, call.args[1].shape)  # type: ignore[no-untyped-call]
    return allocations({"difference": product(shape) * call.out.element_size()})


def log_gamma_of_many(call: Call) -> Script:
    """UnaryOps.cpp mvlgamma: one copy for each dimension."""
    return allocations({"copies": call.args[1] * nbytes(call.args[0])})


def infinite(call: Call) -> Script | None:
    """TensorCompare.cpp isinf: the magnitudes."""
    source = call.args[0]
    return allocations({"magnitudes": nbytes(source)}) if source.is_floating_point() else None


def drawn_around(call: Call) -> Script:
    """DistributionTemplates.h normal_impl: means or deviations that are tensors are spread first."""
    return within({"spread": nbytes(call.out)})


def histogram(call: Call) -> Script:
    """Histogram.cpp histogram_histc_out: edges of the bins, and the counts of each thread."""
    edges = nbytes(call.out) + call.out.element_size()
    return allocations({"edges": edges}, {"counts": torch.get_num_threads() * nbytes(call.out)})


def drawn_without_replacement(call: Call) -> Script:
    """Distributions.cpp multinomial_out: exponential draws for every element, of which the largest win."""
    source = call.args[0]
    return within({"draws": nbytes(source), "values": call.out.numel() * source.element_size()})


def margin_backward(call: Call) -> Script:
    """Loss.cpp soft_margin_loss_backward_out: the factor of the gradient, from two more."""
    size = nbytes(call.args[1])
    return Script(
        before=(
            *(Scratch("alloc", key, size) for key in ("factor", "exponential", "sum")),
            Scratch("free", "sum"),
            Scratch("free", "exponential"),
        )
    )


def dropout_backward(call: Call) -> Script:
    """Dropout.cpp native_dropout_backward: the mask as numbers, times the gradient."""
    size = nbytes(call.args[0])
    lines = (Scratch("alloc", "product", size), Scratch("alloc", "mask", size), Scratch("free", "mask"))
    return Script(before=lines)


def triangle(call: Call) -> Script | None:
    """TriangularOps.cpp checkTrilTriuBatchContiguous: matrices that do not follow each other closely are copied."""
    source = call.args[0]
    expected = product(source.shape[-2:])
    for size, stride in zip(reversed(source.shape[:-2]), reversed(source.stride()[:-2]), strict=True):
        if size > 1 and stride != expected:
            return within({"copy": nbytes(source)})
        expected *= size
    return None


def rolled(call: Call) -> Script | None:
    """TensorTransformations.cpp roll_common: several dimensions are rolled one after the other."""
    return allocations({"rolled": nbytes(call.args[0])}) if len(argument(call, 2, "dims", ())) > 1 else None


def reduced(call: Call) -> Script | None:
    """TensorAdvancedIndexing.cpp scatter_reduce_two: means are sums, divided by how many there are."""
    if argument(call, 4, "reduce") != "mean":
        return None
    return within({"ones": nbytes(call.args[3]), "counts": nbytes(call.out), "empty": call.out.numel()})


def alignments(call: Call) -> Script:
    """LossCTC.cpp ctc_loss_backward_cpu_template: the sums from the end, as large as those from the beginning."""
    return within({"log beta": nbytes(call.args[6])})


def weights_of_samples(call: Call) -> Script:
    """EmbeddingBag.cpp _embedding_bag_per_sample_weights_backward_cpu_template: the bag of each index."""
    indices = call.args[2]
    return within({"offset to bag": (indices.numel() + 1) * indices.element_size()})


# ---------------------------------------------------------------------- images


def _tables(taps: int) -> Rule:
    def rule(call: Call) -> Script:
        """cpu/UpSampleKernel.cpp: for each side and tap, indices and weights of the result's pixels."""
        out = call.out
        return within({"indices and weights": taps * sum(out.shape[2:]) * (INDEX_BYTES + out.element_size())})

    return rule


def _smoothed(support: int) -> Rule:
    def rule(call: Call) -> Script:
        """cpu/UpSampleKernel.cpp separable_upsample_generic_Nd_kernel_impl: first columns, then rows, with tables."""
        source, out = call.args[0], call.out
        rows, columns = source.shape[2:]
        between = product(out.shape[:2]) * rows * out.shape[3] * out.element_size()
        tables = [
            after * (4 * INDEX_BYTES + (2 * -(-max(before, after) * support // after) + 1) * out.element_size())
            for before, after in ((columns, out.shape[3]), (rows, out.shape[2]))
        ]
        return within({"columns": between, "tables": max(tables)})

    return rule


_TO_FLOAT = """
    exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh sigmoid
    erf erfc erfinv lgamma digamma reciprocal logit sinc
"""
"""Functions of one operand whose result is a floating-point number even of integers."""

RULES: dict[str, Rule] = {
    **{f"aten.{name}.default": _cast(0) for name in _TO_FLOAT.split()},
    "aten.pow.Tensor_Scalar": _cast(0),
    "aten.div.Scalar": _cast(0),
    "aten.cumsum.default": cumulated,
    "aten.cumprod.default": cumulated,
    "aten.linalg_vector_norm.default": vector_norm,
    "aten.kthvalue.default": kth_value,
    "aten.gather.default": _indices(2),
    "aten.scatter.src": _indices(2),
    "aten.scatter.value": _indices(2),
    "aten.scatter_.src": _indices(2),
    "aten.scatter_.value": _indices(2),
    "aten.scatter_add.default": _indices(2),
    "aten.scatter_add_.default": _indices(2),
    "aten.ldexp.Tensor": power_of_two,
    "aten.dist.default": distance,
    "aten.mvlgamma.default": log_gamma_of_many,
    "aten.isinf.default": infinite,
    "aten.normal.Tensor_float": drawn_around,
    "aten.normal.float_Tensor": drawn_around,
    "aten.normal.Tensor_Tensor": drawn_around,
    "aten.histc.default": histogram,
    "aten.multinomial.default": drawn_without_replacement,
    "aten.soft_margin_loss_backward.default": margin_backward,
    "aten.native_dropout_backward.default": dropout_backward,
    "aten.roll.default": rolled,
    "aten.scatter_reduce.two": reduced,
    "aten.scatter_reduce_.two": reduced,
    "aten._ctc_loss_backward.default": alignments,
    "aten._ctc_loss_backward.Tensor": alignments,
    "aten._embedding_bag_per_sample_weights_backward.default": weights_of_samples,
    "aten.tril.default": triangle,
    "aten.triu.default": triangle,
    "aten.upsample_nearest1d.default": _tables(1),
    "aten._upsample_nearest_exact1d.default": _tables(1),
    "aten.upsample_linear1d.default": _tables(2),
    "aten.upsample_bicubic2d.default": _tables(4),
    "aten.upsample_nearest3d.default": _tables(1),
    "aten._upsample_nearest_exact3d.default": _tables(1),
    "aten.upsample_trilinear3d.default": _tables(2),
    "aten._upsample_bilinear2d_aa.default": _smoothed(1),
    "aten._upsample_bicubic2d_aa.default": _smoothed(2),
}
"""Op name → rule."""
