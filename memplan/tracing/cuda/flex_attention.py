"""``flex_attention`` as its compiled kernel runs it on CUDA: no scores, a logarithm of sums for each row instead.

Source: torch/_inductor/kernel/flex/flex_attention.py (torch 2.13): ``flex_attention`` makes ``logsumexp`` and
``max_scores`` in fp32 and the output in the order of the query's strides; ``flex_attention_backward`` makes ``delta``
in fp32 and the three gradients, keys' and values' with the query's batch. What autograd keeps is that of
torch/_higher_order_ops/flex_attention.py ``FlexAttentionAutogradOp``, without ``max_scores``, which backward never
reads. Without ``torch.compile`` PyTorch would hold the whole matrix of scores, and says so to every program.

Left out: the split buffers of ``flex_decoding`` (short queries), gradients of what a ``score_mod`` captures, and
arithmetic: how sparse the blocks are, only values tell.
"""

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.nn.attention import flex_attention

from memplan.seam.operators import FlexAttentionHOP
from memplan.seam.patches.cuda import CALL_FLEX_ATTENTION
from memplan.seam.replace import Replacement, replaced

ASSUMPTION = "flex_attention runs as the kernel that torch.compile makes of it, which keeps no scores"
NOT_MODELLED = "flex_attention: its FLOPs, buffers of short queries, gradients of what a score_mod captures"

_HAS_MAXIMA = hasattr(flex_attention, "AuxOutput")
"""Do the kernels make ``max_scores``? (torch 2.9)"""


class FlexAttention:
    """Notes whether it was called."""

    def __init__(self) -> None:
        self.called = False
        """Was it?"""

    def run(
        self, _: FlexAttentionHOP, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *rest: Any
    ) -> tuple[torch.Tensor, ...]:
        """``FlexAttentionHOP.__call__``: output, logarithms of sums, and since torch 2.9 maxima."""
        self.called = True
        _score_mod, block_mask, *_others = rest
        mask = [part for part in block_mask if isinstance(part, torch.Tensor)]
        made: tuple[torch.Tensor, ...] = _Kernel.apply(query, key, value, *mask)  # type: ignore[no-untyped-call]
        return made


@contextlib.contextmanager
def cuda_flex_attention() -> Iterator[FlexAttention]:
    """Let ``flex_attention`` take the compiled kernel's way, whether a program compiles it or not."""
    flex = FlexAttention()

    def call(self: FlexAttentionHOP, *args: Any, **kwargs: Any) -> Any:
        return flex.run(self, *args, **kwargs)

    with (
        warnings.catch_warnings(),
        replaced((Replacement(CALL_FLEX_ATTENTION.path, call),)),
    ):
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        yield flex


class _Kernel(torch.autograd.Function):
    """What the kernels allocate; nothing is computed."""

    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *mask: torch.Tensor) -> Any:
        rows = query.shape[:-1]
        sums, *maxima = (query.new_empty(rows, dtype=torch.float32) for _ in range(2 if _HAS_MAXIMA else 1))
        output = _in_order_of(query, (*rows, value.shape[-1]))
        ctx.save_for_backward(query, key, value, output, sums, *mask)
        ctx.mark_non_differentiable(*maxima)
        ctx.set_materialize_grads(False)
        return output, sums, *maxima

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor | None) -> Any:
        query, key, value, _output, sums, *mask = ctx.saved_tensors
        delta = query.new_empty(sums.shape, dtype=torch.float32)
        batch = query.shape[0]
        of_query = _in_order_of(query, query.shape)
        of_value = _in_order_of(value, (batch, *value.shape[1:]))
        of_key = _in_order_of(key, (batch, *key.shape[1:]))
        del delta
        if key.shape[0] != batch:
            of_key, of_value = of_key.sum(0, keepdim=True), of_value.sum(0, keepdim=True)
        return of_query, of_key, of_value, *[None] * len(mask)


def _in_order_of(like: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """A dense tensor whose dimensions lie in memory in the order of another's (``infer_dense_strides``)."""
    order = sorted(range(like.dim()), key=like.stride, reverse=True)
    back = sorted(range(like.dim()), key=order.__getitem__)
    return like.new_empty([shape[dimension] for dimension in order]).permute(back)
