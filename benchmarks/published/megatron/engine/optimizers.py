"""Transformer Engine's optimizer and its kernels over lists of tensors (pytorch/optimizers), as far as memory goes."""

from typing import Any

import torch

CHUNK = 2048 * 32
"""multi_tensor_apply.py: elements that a thread block works on."""


class FusedAdam(torch.optim.AdamW):
    """fused_adam.py: two moments per parameter, and no temporaries."""

    def __init__(self, params: Any, *, adam_w_mode: bool, **options: Any) -> None:
        del adam_w_mode
        super().__init__(params, **options)

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        """Make the moments; the kernel writes over them and the parameters."""
        del closure
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and not self.state[parameter]:
                    self.state[parameter] = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}


def multi_tensor_applier(kernel: Any, overflow: torch.Tensor, lists: Any, *arguments: Any) -> Any:
    """multi_tensor_apply.py."""
    return kernel(CHUNK, overflow, lists, *arguments)


def multi_tensor_l2norm(*_: object) -> tuple[torch.Tensor, None]:
    """A norm makes one number."""
    return torch.zeros(1, device="cuda"), None


def multi_tensor_scale(*_: object) -> None:
    """Scaling works in place."""
