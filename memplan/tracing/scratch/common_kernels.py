"""Scratch of kernels whose C++ code is the same on every device: losses by element, image patches, distances.

Follows aten/src/ATen/native/Loss.cpp and Distance.cpp; read at main of 2026, measured on CPU with torch 2.13.0,
November 2026.
"""

import torch

from memplan.tracing.scratch.cpu_shapes import (
    allocations,
    argument,
    casts,
    casts_in_place,
    common_type,
    copy_bytes,
    enlarge,
    nbytes,
    product,
    promoted,
)
from memplan.tracing.scratch.rules import Call, Rule, Scratch, Script

REDUCTION_POSITIONS = {
    "aten.mse_loss.default": 2,
    "aten.smooth_l1_loss.default": 2,
    "aten.huber_loss.default": 2,
    "aten.soft_margin_loss.default": 2,
    "aten.binary_cross_entropy.default": 3,
    "aten.binary_cross_entropy_with_logits.default": 4,
}
"""Op name → where the argument ``reduction`` stands."""
_NOT_REDUCED = 0
"""ATen/core/Reduction.h ``Reduction::None``."""


def is_reduced(call: Call) -> bool:
    """Does a loss end in a mean or a sum?"""
    return bool(argument(call, REDUCTION_POSITIONS[call.name], "reduction", 1) != _NOT_REDUCED)


def loss_shape(call: Call) -> tuple[int, ...]:
    """Shape of a loss before it is reduced."""
    shape: torch.Size = torch.broadcast_shapes(call.args[0].shape, call.args[1].shape)  # type: ignore[no-untyped-call]
    return tuple(shape)


def _elementwise_loss(*, kept: bool, copies: int) -> Rule:
    """A loss computed by element, then reduced.

    Args:
        kept: Are the elements computed into the result itself, which then keeps their memory?
        copies: Further buffers of their size.
    """

    def rule(call: Call) -> Script | None:
        first = _casts(call)
        if not is_reduced(call):
            return allocations(first) if first else None
        elements = product(loss_shape(call)) * call.out.element_size()
        if kept:
            enlarge(call.out, elements)
        again = {f"{key} again": size for key, size in first.items()}
        return allocations(first, {**again, **{f"elements {index}": elements for index in range(copies)}})

    return rule


def _casts(call: Call) -> dict[str, int]:
    """Copies of operands in the common type, which the kernels of the CPU alone make."""
    operands = call.args[:2]
    return casts(operands, common_type(operands)) if _on_host(call) else {}


def _on_host(call: Call) -> bool:
    return call.device.kind == "cpu"


def cross_entropy_with_logits(call: Call) -> Script:
    """``log_sigmoid``, the weights of positives, the loss by element.

    On the CPU ``log_sigmoid`` takes a buffer and reads logits in rows (Activation.cpp ``log_sigmoid_forward_cpu``; that
    of CUDA ignores the buffer), and operands of another type are copied.
    """
    logits, target = call.args[:2]
    count, on_host, positive = logits.numel(), _on_host(call), argument(call, 3, "pos_weight")
    steps = [Scratch("alloc", "log sigmoid", nbytes(logits))]
    if on_host:
        copy = copy_bytes(logits)
        steps += [Scratch("alloc", "buffer", nbytes(logits))]
        steps += [Scratch("alloc", "logits in rows", copy), Scratch("free", "logits in rows")] if copy else []
        steps += [Scratch("free", "buffer")]
    if positive is not None:
        factor = promoted(positive.dtype, target.dtype)
        steps += [Scratch("alloc", "weight less one", nbytes(positive))]
        steps += [Scratch("alloc", "factor", count * factor.itemsize), Scratch("free", "weight less one")]
        steps += casts_in_place(logits.dtype, factor, count, "weighted") if on_host else ()
        steps += [Scratch("free", "factor")]
    # The loss is of the target's type; the logits and their log-sigmoid are written into it.
    written = [line for key in ("product", "loss") for line in casts_in_place(target.dtype, logits.dtype, count, key)]
    after = tuple(written) if on_host else ()
    if not is_reduced(call):
        return Script(before=tuple(steps), after=after)
    return Script(before=(*steps, Scratch("alloc", "elements", count * target.element_size()), *after))


ELEMENTWISE_LOSSES: dict[str, Rule] = {
    # The structured kernels' meta functions allocate a result of full size and resize it, which frees nothing
    # (pytorch/pytorch issue 185647, open in August 2026); the elements themselves are computed into a second one.
    "aten.mse_loss.default": _elementwise_loss(kept=True, copies=1),
    "aten.smooth_l1_loss.default": _elementwise_loss(kept=True, copies=1),
    "aten.huber_loss.default": _elementwise_loss(kept=False, copies=1),
    # Computed into the result, reduced, then resized; cuda/Loss.cu binary_cross_entropy_out_cuda does the same.
    "aten.binary_cross_entropy.default": _elementwise_loss(kept=True, copies=0),
    "aten.soft_margin_loss.default": _elementwise_loss(kept=True, copies=0),
    "aten.binary_cross_entropy_with_logits.default": cross_entropy_with_logits,
}
"""Op name → rule."""


def patches(call: Call) -> Script | None:
    """A strided source is copied first; the result starts as large as the source, and resizing gives no memory back.

    Im2Col.cpp ``im2col_out_cpu_template``, Col2Im.cpp ``col2im_out_cpu_template``, cuda/Im2Col.cu, cuda/Col2Im.cu.
    """
    source, out = call.args[0], call.out
    copy = copy_bytes(source)
    if nbytes(out) <= nbytes(source):
        enlarge(out, nbytes(source))
        return allocations({}, {"contiguous": copy}) if copy else None
    first = Scratch("alloc", "first size", nbytes(source))
    copied = (Scratch("alloc", "contiguous", copy),) if copy else ()
    return Script(before=(first, *copied), after=(Scratch("free", "first size"),))


PATCHES: dict[str, Rule] = {"aten.im2col.default": patches, "aten.col2im.default": patches}
"""Op name → rule."""


def rolled(call: Call) -> Script:
    """TensorTransformations.cpp roll_common: several dimensions one after the other; without any, elements in a row."""
    source, dims = call.args[0], argument(call, 2, "dims", ())
    if not dims:
        return allocations({"in a row": copy_bytes(source)})
    return allocations({f"rolled {count}": nbytes(source) for count in range(1, len(dims))})


def among_boundaries(values_at: int) -> Rule:
    """``bucketize``, ``searchsorted``: operands in rows and of one type, made after the result.

    BucketizationUtils.h ``searchsorted_maybe_trim_input_tensors``.

    Args:
        values_at: Which argument has the values; the other one of the first two has the boundaries.
    """

    def rule(call: Call) -> Script | None:
        searched = {"values": call.args[values_at], "boundaries": call.args[1 - values_at]}
        rows = searched | {"sorter": argument(call, 5, "sorter")}
        steps = [Scratch("alloc", f"{key} in rows", copy_bytes(each)) for key, each in rows.items() if copy_bytes(each)]
        common = common_type(list(searched.values()))
        for key, each in searched.items():
            if each.dtype is not common:
                steps.append(Scratch("alloc", f"{key} cast", each.numel() * common.itemsize))
                steps += [Scratch("free", f"{key} in rows")] if copy_bytes(each) else []
        return Script(after=tuple(steps)) if steps else None

    return rule


BOUNDARIES: dict[str, Rule] = {
    "aten.bucketize.Tensor": among_boundaries(0),
    "aten.searchsorted.Tensor": among_boundaries(1),
}
"""Op name → rule."""


def distances(call: Call) -> Script | None:
    """``_euclidean_dist(x1, x2)`` (Distance.cpp): both sides widened by squared norms and ones."""
    if not call.out.numel():
        return None
    first, second = ((nbytes(side), nbytes(side) // side.shape[-1]) for side in call.args[:2])
    steps = [*_squared_norm("first", *first), *_squared_norm("second", *second)]
    (size, row), (other_size, other_row) = first, second
    steps += [Scratch("alloc", "doubled", size), Scratch("alloc", "wide first", size + 2 * row)]
    steps += [Scratch("free", key) for key in ("doubled", "first ones", "first norm")]
    steps += [Scratch("alloc", "wide second", other_size + 2 * other_row)]
    steps += [Scratch("free", key) for key in ("second ones", "second norm")]
    return Script(before=tuple(steps), after=(Scratch("free", "wide second"), Scratch("free", "wide first")))


def _squared_norm(side: str, size: int, row: int) -> tuple[Scratch, ...]:
    squares = (Scratch("alloc", f"{side} squares", size), Scratch("alloc", f"{side} norm", row))
    return (*squares, Scratch("free", f"{side} squares"), Scratch("alloc", f"{side} ones", row))
