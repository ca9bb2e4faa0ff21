"""Scratch of CPU kernels that cast, repeat or split their operands: what TensorIterator and small loops keep aside.

Each rule names the file under aten/src/ATen/native that it follows. Sizes are those of torch.profiler's events on
torch 2.13.0, over torch's own samples of its operators (``benchmarks/cpu_verdicts.py``), November 2026.
"""

import math
from itertools import chain

import torch

from memplan.tracing.scratch.cpu_shapes import (
    INDEX_BYTES,
    allocations,
    argument,
    casts,
    casts_in_place,
    common_type,
    copy_bytes,
    nbytes,
    product,
    promoted,
)
from memplan.tracing.scratch.rules import Call, Rule, Scratch, Script, within


def _cast(position: int) -> Rule:
    def rule(call: Call) -> Script | None:
        """aten/src/ATen/TensorIterator.cpp: on CPU an operand of another type is copied to the result's first."""
        source, out = call.args[position], call.out
        if source.dtype is out.dtype or not (out.dtype.is_floating_point or out.dtype.is_complex):
            return None
        return allocations({"cast": source.numel() * out.element_size()})

    return rule


def cumulated(call: Call) -> Script | None:
    """ReduceOps.cpp cumsum_cpu_kernel, cumprod: the source in the result's type."""
    source, out = call.args[0], call.out
    return None if source.dtype is out.dtype else within({"cast": nbytes(out)})


def vector_norm(call: Call) -> Script | None:
    """LinearAlgebra.cpp linalg_vector_norm: the source in the type that is asked for; the largest of magnitudes."""
    source, wanted = call.args[0], argument(call, 4, "dtype")
    if source.is_complex() and abs(argument(call, 1, "ord", 2)) == math.inf:
        return within({"magnitudes": nbytes(source) // 2, "as complex": nbytes(source)})
    if wanted is None or wanted is source.dtype:
        return None
    return within({"cast": source.numel() * call.out.element_size()})


def kth_value(call: Call) -> Script:
    """Sorting.cpp kthvalue_out_impl_cpu: a copy that is sorted in place, and its indices."""
    source = call.args[0]
    return within({"copy": nbytes(source), "indices": source.numel() * INDEX_BYTES})


def phase(call: Call) -> Script | None:
    """UnaryOps.cpp unary_op_impl_with_complex_to_float_out: phases are computed as complex numbers."""
    return allocations({"complex": nbytes(call.args[0])}) if call.args[0].is_complex() else None


def magnitudes(call: Call) -> Script | None:
    """``_foreach_abs``: the same for one tensor after the other."""
    return within({"complex": max((nbytes(each) for each in call.args[0] if each.is_complex()), default=0)})


def norms(call: Call) -> Script:
    """``_foreach_norm``: one ``linalg_vector_norm`` after the other; what the largest takes."""
    wanted, largest = argument(call, 2, "dtype"), argument(call, 1, "ord", 2) in (math.inf, -math.inf)
    casts = [each.numel() * wanted.itemsize for each in call.args[0] if wanted not in (None, each.dtype)]
    parts = [3 * nbytes(each) // 2 for each in call.args[0] if largest and each.is_complex()]
    return within({"cast": max(casts, default=0), "magnitudes": max(parts, default=0)})


def counted(call: Call) -> Script | None:
    """SummaryOps.cpp count_nonzero: along dimensions, a sum of booleans as integers."""
    if not argument(call, 1, "dim"):
        return None
    size = call.args[0].numel()
    return allocations({"mask": size}, {"as integers": size * INDEX_BYTES})


def filled(call: Call) -> Script:
    """TensorAdvancedIndexing.cpp masked_scatter__cpu: the source lies closely."""
    return within({"source": copy_bytes(call.args[2])})


def median(call: Call) -> Script:
    """Sorting.cpp median_impl: a copy, which is sorted in part."""
    return within({"copy": nbytes(call.args[0])})


def median_along(call: Call) -> Script | None:
    """Sorting.cpp median_with_indices_impl: the dimension is brought to the end."""
    source, dim = call.args[0], argument(call, 1, "dim", -1)
    return within({"copy": nbytes(source)}) if source.ndim and source.stride(dim) != 1 else None


def _variance(results: int) -> Rule:
    def rule(call: Call) -> Script | None:
        """ReduceOps.cpp std_var_out, std_var_mean_out: of complex numbers, both parts one after the other."""
        out = call.out[0] if isinstance(call.out, list | tuple) else call.out
        return allocations({"parts": 2 * results * nbytes(out)}) if call.args[0].is_complex() else None

    return rule


def repeated(call: Call) -> Script:
    """TensorShape.cpp repeat: sizes as small tensors."""
    return within({"sizes": 4 * INDEX_BYTES * len(call.args[1])})


def unfold_backward(call: Call) -> Script:
    """UnfoldBackward.h: an index for each place of the dimension."""
    return within({"places": call.args[1][call.args[2]] * INDEX_BYTES})


def packed(call: Call) -> Script:
    """PackedSequence.cpp _pack_padded_sequence: steps that lie apart are copied; lengths decide which."""
    data = call.out[0]
    return Script(after=(Scratch("alloc", "steps", nbytes(data), most=nbytes(data)),))


def power_of_two(call: Call) -> Script:
    """BinaryOps.cpp ldexp: the power itself."""
    base, exponent = call.args[:2]
    power = exponent.dtype if exponent.dtype.is_floating_point else torch.get_default_dtype()
    sizes = {"power": exponent.numel() * power.itemsize}
    for key, each, kind in (("base", base, base.dtype), ("exponent", exponent, power)):
        if kind is not call.out.dtype:
            sizes[key] = each.numel() * call.out.element_size()
    return allocations(sizes)


def distance(call: Call) -> Script:
    """Distance.cpp dist: the difference, before its norm."""
    shape = torch.broadcast_shapes(call.args[0].shape, call.args[1].shape)  # type: ignore[no-untyped-call]
    common = common_type(call.args[:2])
    return allocations({**casts(call.args[:2], common), "difference": product(shape) * common.itemsize})


def log_gamma_of_many(call: Call) -> Script:
    """UnaryOps.cpp mvlgamma: one copy for each dimension."""
    return allocations({"copies": call.args[1] * nbytes(call.args[0])})


def infinite(call: Call) -> Script | None:
    """TensorCompare.cpp isinf: the magnitudes."""
    source = call.args[0]
    if source.is_complex():
        return within({"part": nbytes(source) // 2, "of the other part": source.numel()})
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
    scores, target = call.args[1:3]
    count, common = scores.numel(), promoted(scores.dtype, target.dtype)
    sizes = {"negative": nbytes(target), "product": count * common.itemsize, "factor": count * common.itemsize}
    lines = [Scratch("alloc", key, size) for key, size in sizes.items()]
    if scores.dtype is not target.dtype:
        lines[1:1] = [Scratch("alloc", "cast", count * common.itemsize)]
        lines[3:3] = [Scratch("free", "cast")]
    lines += [Scratch("free", "product"), Scratch("free", "negative")]
    written = (casts_in_place(scores.dtype, kind, count, str(kind)) for kind in dict.fromkeys((target.dtype, common)))
    return Script(before=tuple(lines), after=tuple(chain.from_iterable(written)))


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


def alignments(call: Call) -> Script:
    """LossCTC.cpp ctc_loss_backward_cpu_template: the sums from the end, as large as those from the beginning."""
    return within({"log beta": nbytes(call.args[6])})


def weights_of_samples(call: Call) -> Script:
    """EmbeddingBag.cpp _embedding_bag_per_sample_weights_backward_cpu_template: the bag of each index."""
    indices = call.args[2]
    return within({"offset to bag": (indices.numel() + 1) * indices.element_size()})


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
    "aten.median.default": median,
    "aten.nanmedian.default": median,
    "aten.median.dim": median_along,
    "aten.nanmedian.dim": median_along,
    "aten.var.correction": _variance(1),
    "aten.std.correction": _variance(1),
    "aten.var_mean.correction": _variance(2),
    "aten.std_mean.correction": _variance(2),
    "aten.repeat.default": repeated,
    "aten.unfold_backward.default": unfold_backward,
    "aten._pack_padded_sequence.default": packed,
    "aten.angle.default": phase,
    "aten._foreach_abs.default": magnitudes,
    "aten._foreach_norm.Scalar": norms,
    "aten.count_nonzero.default": counted,
    "aten.count_nonzero.dim_IntList": counted,
    "aten.masked_scatter.default": filled,
    "aten.masked_scatter_.default": filled,
    "aten.ldexp.Tensor": power_of_two,
    "aten.ldexp_.default": power_of_two,
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
    "aten._ctc_loss_backward.default": alignments,
    "aten._ctc_loss_backward.Tensor": alignments,
    "aten._embedding_bag_per_sample_weights_backward.default": weights_of_samples,
    "aten.tril.default": triangle,
    "aten.triu.default": triangle,
}
"""Op name → rule."""
