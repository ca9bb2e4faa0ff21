"""What a run of Megatron-LM has on its machine and a trace has not: GPUs' kernels, random states and other ranks.

Every stand-in leaves on the device what the thing itself leaves there.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
import torch.distributed

from published.megatron import engine

WARPS_PER_BLOCK = 4
"""apex csrc/megatron/scaled_masked_softmax.h ``get_batch_per_block``, for keys of more than 128 elements."""


class Done:
    """Communication that has come to its end; NCCL's works on the tensors that it is given."""

    def wait(self) -> None:
        """Nothing runs."""


def install(*, scatters: bool) -> None:
    """Put all of them in, for good: this process runs one recipe.

    Args:
        scatters: Do tokens come back from experts by ``scatter_add``, as before October 2025?
    """
    _type_names()
    engine.install()
    _apex_kernels()
    _random_states()
    _other_ranks()
    if scatters:
        _former_unpermute()


def _type_names() -> None:
    """``Tensor.type()`` names the device too, by which the optimizer sorts parameters."""
    former = torch.Tensor.type

    def type_(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        said: Any = former(tensor, *args, **kwargs)
        return said if args or kwargs else "torch.cuda." + said.rpartition(".")[2]

    torch.Tensor.type = type_  # type: ignore[method-assign, assignment]


def _apex_kernels() -> None:
    """csrc/megatron: softmax makes its result, and backward writes over the gradient (scaled_*_softmax*.cu).

    A product adds to ``main_grad`` what is a weight's gradient (fused_weight_gradient_dense*.cu).
    """
    products: Any = ModuleType("fused_weight_gradient_mlp_cuda")
    products.wgrad_gemm_accum_fp32 = products.wgrad_gemm_accum_fp16 = _nothing
    sys.modules[products.__name__] = products
    for name in ("scaled_upper_triang_masked_softmax_cuda", "scaled_masked_softmax_cuda", "scaled_softmax_cuda"):
        module: Any = ModuleType(name)
        module.forward = lambda scores, *_: torch.empty_like(scores)
        module.backward = lambda gradient, *_: gradient
        module.get_batch_per_block = lambda *_: WARPS_PER_BLOCK
        sys.modules[name] = module


def _random_states() -> None:
    """States of generators lie on the host."""
    from megatron.core.tensor_parallel import random

    random._get_cuda_rng_state = _nothing  # noqa: SLF001
    random._set_cuda_rng_state = _nothing  # noqa: SLF001


def _other_ranks() -> None:
    """What ``FakeTensorMode`` does not know of the fake process group, and objects, which every rank has alike."""
    from megatron.core.distributed import param_and_grad_buffer

    @contextmanager
    def coalescing(*_: object, **__: object) -> Iterator[Done]:
        yield Done()

    def gather(results: list[Any], item: Any, group: object = None) -> None:
        del group
        results[:] = [item] * len(results)

    torch.distributed.all_gather_object = gather
    torch.distributed.batch_isend_irecv = lambda operations: [Done() for _ in operations]
    param_and_grad_buffer._coalescing_manager = coalescing  # noqa: SLF001
    param_and_grad_buffer.dist_all_gather_func = _done
    param_and_grad_buffer.dist_reduce_scatter_func = _done


def _former_unpermute() -> None:
    """transformer/moe/moe_utils.py ``unpermute``: since 56818f9e50 deterministic algorithms ``index_add``.

    Autograd keeps what that adds, and of ``scatter_add`` only the places.
    """
    from megatron.core.transformer.moe import moe_utils, token_dispatcher

    def unpermute(*args: Any, **kwargs: Any) -> Any:
        torch.use_deterministic_algorithms(mode=False)
        try:
            return moe_utils.unpermute(*args, **kwargs)
        finally:
            torch.use_deterministic_algorithms(mode=True)

    token_dispatcher.unpermute = unpermute


def _done(*_: object, **__: object) -> Done:
    return Done()


def _nothing(*_: object, **__: object) -> None:
    return None
