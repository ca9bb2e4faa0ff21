"""Which new storage stands for memory that eager PyTorch would have overwritten.

Under any dispatch mode C++ sees tensors "like subclasses" and takes out-of-place branches where a plain run works in
place (ATen/TensorSubclassLikeUtils.h ``isTensorSubclassLike``, asked in torch/csrc/autograd/FunctionsManual.cpp and
input_buffer.cpp, and under aten/src/ATen/native in ReduceOps.cpp and TensorAdvancedIndexing.cpp). The recorder then
sees a second storage that no real run has. Here is where that happens.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from memplan.seam.tensors import storage_Use_Count
from memplan.tracing.refs import is_dense
from memplan.versions import at_least

_CLAMPS = (
    {(f"{name}Backward", "aten.masked_fill.Scalar") for name in ("Clamp", "Maximum", "Minimum")}
    if at_least(torch.__version__, "2.14")
    else {("ClampBackward", f"aten.logical_{word}.default") for word in ("and", "or")}
)
"""Bounds that are tensors share the gradient where they are met, from torch 2.14 on (measured on 2.6, 2.13, 2.14)."""

# Autograd node → op whose first argument eager overwrites. Measured over the OpInfo database of torch 2.13: a real
# run's profiler shows the in-place variant where a dispatch mode sees the functional one.
OVERWRITES = frozenset(
    {
        (node, "aten.scatter.src")
        for node in (
            "MaxBackward",
            "MinBackward",
            "MedianBackward",
            "NanmedianBackward",
            "ModeBackward",
            "KthvalueBackward",
            "SortBackward",
            "TopkBackward",
            "AminmaxBackward",
        )
    }
    | {
        ("GatherBackward", "aten.scatter_add.default"),
        ("CummaxBackward", "aten.scatter_add.default"),
        ("CumminBackward", "aten.scatter_add.default"),
        ("IndexBackward", "aten.index_put.default"),
        ("IndexSelectBackward", "aten.index_add.default"),
        ("RepeatInterleaveBackward", "aten.index_add.default"),
        ("TakeBackward", "aten.put.default"),
        ("MaskedSelectBackward", "aten.masked_scatter.default"),
        ("Atan2Backward", "aten.masked_fill.Scalar"),
        ("TraceBackward", "aten.index_fill.int_Scalar"),
        ("CumprodBackward", "aten.mul.Tensor"),
        ("CumprodBackward", "aten.div.Tensor"),
        ("BinaryCrossEntropyBackward", "aten.mul.Tensor"),
    }
    | _CLAMPS
)

OVERWRITES_ITS_OWN = frozenset({
    ("BinaryCrossEntropyWithLogitsBackward", "aten.sub.Tensor"),
    ("BinaryCrossEntropyWithLogitsBackward", "aten.mul.Tensor"),
})  # fmt: skip
"""The same where the first argument is what the node itself has made; weights that a program gave stay as they are."""

_IN_PLACE_WITHOUT_GRAPH = frozenset({"BinaryCrossEntropyWithLogitsBackward", "Atan2Backward"})
"""Nodes that overwrite nothing where gradients have gradients (``GradMode::is_enabled``; measured on torch 2.13)."""

OVERWRITING = frozenset(name for _, name in OVERWRITES | OVERWRITES_ITS_OWN)
"""The ops among them."""

# What Python sees on a gradient that only the engine's input buffer holds: measured on eleven tiny graphs (fresh,
# residual, fan-out of three, view, saved, retained, doubled and concatenated gradients), alike in torch 2.6, 2.13 and
# 2.15.
_LONELY_TENSOR = 4
_LONELY_STORAGE = 2
_LONELY_OBJECT = 3
"""References to the Python object of a tensor that no Python code holds, the call's own among them (measured)."""
_LONELY_GRADIENT = 3 if at_least(torch.__version__, "2.7") else 2
"""The same of a gradient that is summed (measured on torch 2.6 and 2.13; between them nothing, so the larger)."""


_MASKING = ContextVar("masking", default=False)


@contextmanager
def mask_added_in_place() -> Iterator[None]:
    """Inside, ``add`` overwrites its first argument: the scores of attention's math kernel, to which its mask is added.

    Source: aten/src/ATen/native/transformers/attention.cpp ``_scaled_dot_product_attention_math``, which adds out of
    place where ``areAnyTensorSubclassLike``.
    """
    before = _MASKING.set(True)
    try:
        yield
    finally:
        _MASKING.reset(before)


def adds_mask_in_place() -> bool:
    """Is an ``add`` that runs here the one that eager does in place on attention's scores?"""
    return _MASKING.get()


def adds_bias_in_place(args: tuple[Any, ...], last_op: str) -> bool:
    """Is this ``add`` the one of ``linear``, which eager does in place on the product that was made just before?

    Source: aten/src/ATen/native/Linear.cpp ``linear``, which adds out of place where ``isTensorSubclassLike``. It comes
    here with sources of three and more dimensions that are not contiguous; the product is nobody else's, unlike that of
    ``x @ w + b``, which Python holds.

    Args:
        args: The two addends.
        last_op: Name of the op that has made the first one; empty where it is not the last one that ran.
    """
    if last_op != _PRODUCT or not isinstance(args[1], torch.Tensor) or args[1].dim() != 1:
        return False
    if sys.getrefcount(args[0]) > _LONELY_OBJECT:
        return False
    # Inference mode decomposes below autograd, which holds one of them.
    return _holders(args[0]) == (_LONELY_TENSOR - torch.is_inference_mode_enabled(), _LONELY_STORAGE)


_PRODUCT = "aten._unsafe_view.default"
"""What ``matmul`` of more than two dimensions ends with."""


def node_kind(node: Any) -> str:
    """``SumBackward`` for an autograd node called ``SumBackward0``."""
    return str(node.name()).rstrip("0123456789")


def overwrites(node: Any, name: str, *, is_its_own: bool) -> bool:
    """Does eager overwrite the first argument of a node's op?

    Args:
        node: The autograd node that runs.
        name: The op.
        is_its_own: Was that argument made since the backward began?
    """
    kind = node_kind(node)
    if kind in _IN_PLACE_WITHOUT_GRAPH and torch.is_grad_enabled():
        return False
    return (kind, name) in OVERWRITES or (is_its_own and (kind, name) in OVERWRITES_ITS_OWN)


def accumulates_in_place(args: tuple[Any, ...], asked_device: int) -> bool:
    """Is this ``add`` the engine summing gradients, which eager does in place?

    The engine asks the second tensor's device just before it adds (measured); it adds in place if nobody else holds
    the first gradient and it is dense (torch/csrc/autograd/input_buffer.cpp ``can_accumulate_inplace``).

    Args:
        args: The two addends.
        asked_device: ``id`` of the tensor whose device was asked by the dispatch call just before, 0 if none.
    """
    if len(args) != 2 or id(args[1]) != asked_device or torch.is_grad_enabled():
        return False
    # A hook of a module holds what it was given until its inputs' gradients are there.
    if sys.getrefcount(args[0]) > _LONELY_GRADIENT:
        return False
    tensor, storage = _holders(args[0])
    return tensor <= _LONELY_TENSOR and storage <= _LONELY_STORAGE and is_dense(args[0])


def _holders(tensor: torch.Tensor) -> tuple[int, int]:
    """How many hold a tensor and its storage, as seen from a dispatch mode: Python's own references count too."""
    # Bound to a name, so that Python's own storage object is alive and counted in every release: torch 2.6 drops it
    # with its last reference, 2.13 keeps it.
    storage: Any = tensor.untyped_storage()
    return tensor._use_count(), storage_Use_Count(storage._cdata)  # type: ignore[attr-defined]
