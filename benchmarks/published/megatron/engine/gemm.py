"""Matrix products and communication of Transformer Engine's layers: what they leave on the device, no numbers.

File names are of NVIDIA/TransformerEngine at 4329ff84 (2.17.1), below ``transformer_engine/pytorch``.
"""

from functools import cache

import torch

HOPPER = 9
WORKSPACE, SMALL_WORKSPACE = 32 * 2**20 + 1024, 4 * 2**20
"""cpp_extensions/gemm.py ``get_cublas_workspace_size_bytes``, from Hopper on and before."""


def product(rows: torch.Size, columns: int, like: torch.Tensor) -> torch.Tensor:
    """cpp_extensions/gemm.py ``general_gemm``: cuBLASLt takes no work space of torch's, but the engine's own."""
    workspace()
    return like.new_empty((*rows, columns))


@cache
def workspace(stream: int = -1) -> torch.Tensor:
    """cpp_extensions/gemm.py ``get_cublas_workspace``: one per device, kept for good, and one per stream of grouped."""
    del stream
    nbytes = WORKSPACE if torch.cuda.get_device_capability()[0] >= HOPPER else SMALL_WORKSPACE
    return torch.empty(nbytes, dtype=torch.uint8, device="cuda")


@cache
def _dummy(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="cuda")


def get_dummy_wgrad(shape: list[int], dtype: torch.dtype, zero: bool = False) -> torch.Tensor:
    """module/base.py: what autograd is given where a gradient has gone into ``main_grad``; one per shape, for good."""
    made = _dummy(tuple(shape), dtype)
    if zero:
        made.fill_(0)
    return made.detach()


def gathered(tensor: torch.Tensor, ranks: int) -> torch.Tensor:
    """distributed.py ``gather_along_first_dim``."""
    return tensor.new_empty((tensor.shape[0] * ranks, *tensor.shape[1:]))


def scattered(tensor: torch.Tensor, ranks: int) -> torch.Tensor:
    """distributed.py ``reduce_scatter_along_first_dim``."""
    return tensor.new_empty((tensor.shape[0] // ranks, *tensor.shape[1:]))


def weight_gradient(weight: torch.Tensor, *, fused: bool) -> torch.Tensor:
    """module/linear.py ``_linear_backward``: a new tensor, or ``main_grad`` and a dummy (``weight`` is a parameter)."""
    workspace()
    if not fused:
        return torch.empty_like(weight)
    weight.grad_added_to_main_grad = True  # type: ignore[attr-defined]
    return get_dummy_wgrad(list(weight.shape), weight.dtype, getattr(weight, "zero_out_wgrad", False))


def drop(*tensors: torch.Tensor) -> None:
    """utils.py ``clear_tensor_data``: memory goes although something still refers to the tensor."""
    for tensor in tensors:
        tensor.data = torch.Tensor().to(tensor)
