"""``--optimizer-in-backward``: each parameter is updated as soon as its gradient is whole, and the gradient is freed.

As PyTorch's tutorial "How to save memory by fusing the optimizer step into the backward pass" and torchtune do it
(torchtune/training/memory.py, ``OptimizerInBackwardWrapper``): one optimizer for each parameter, stepped by a hook.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch

from memplan.errors import UsageError
from memplan.job.spec import JobSpec


class InBackward:
    """In place of the optimizer of a loop: what it would do has been done when backward ends.

    Args:
        parameters: Those that are trained.
        make: Makes an optimizer of a list of parameters.
    """

    def __init__(
        self,
        parameters: Iterable[torch.nn.Parameter],
        make: Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer],
    ) -> None:
        self.optimizers = {parameter: make([parameter]) for parameter in parameters}
        """One for each parameter."""
        for parameter in self.optimizers:
            parameter.register_post_accumulate_grad_hook(self._update)  # type: ignore[no-untyped-call]

    def step(self) -> None:
        """Nothing is left to do."""

    def zero_grad(self) -> None:
        """No gradient is left."""

    def _update(self, parameter: Any) -> None:
        self.optimizers[parameter].step()
        self.optimizers[parameter].zero_grad()


def check(spec: JobSpec) -> None:
    """Refuse what needs all gradients at once.

    Raises:
        UsageError: The job accumulates, clips or scales gradients, or DeepSpeed steps.
    """
    needs = {
        "--grad-accum": spec.grad_accum > 1,
        "--clip-grad-norm": spec.clip_grad_norm is not None,
        "--precision fp16-mixed": spec.precision == "fp16-mixed",
    }
    given = ", ".join(option for option, is_given in needs.items() if is_given)
    if given:
        what = f"--optimizer-in-backward cannot go with {given}, which needs every gradient at once"
        raise UsageError(what, where="--optimizer-in-backward", hint="leave one of them out")
    if spec.parallel.data.startswith("zero"):
        what = f"--optimizer-in-backward cannot go with --parallel {spec.parallel}: DeepSpeed's engine steps by itself"
        raise UsageError(what, where="--optimizer-in-backward", hint="leave one of them out")
