"""Optimizers by name: torch's own where torch has them, else small ones that allocate what the named library does."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from memplan.errors import UsageError
from memplan.job.spec import OptimizerImpl, OptimizerName
from memplan.seam import tensors

if TYPE_CHECKING:
    import torch

    Advance = Callable[[Sequence[torch.nn.Parameter], Callable[[torch.Tensor], dict[str, Any]]], None]

LEARNING_RATE = 1e-4
"""No memory depends on it; small, so that a step run for real changes little."""
SGD_MOMENTUM = 0.9
"""The usual momentum; any value but 0 costs the same memory."""
LION_BETAS = (0.9, 0.99)
"""lion_pytorch/lion_pytorch.py, Lion.__init__."""

# bitsandbytes/optim/optimizer.py (0.44 and later), Optimizer2State.init_state and Optimizer8bit.get_state_buffer.
MIN_8BIT_ELEMENTS = 4096
"""Smaller tensors keep 32-bit states."""
BLOCK_ELEMENTS = 256
"""Elements that share one fp32 absolute maximum; 2048 before 0.44."""
MIN_PAGED_ELEMENTS = 100_000
"""Smaller states of a paged optimizer stay ordinary device memory."""
QUANTILES = 256
"""Entries of each fp32 map from 8-bit codes to values."""

IMPLEMENTATIONS: dict[OptimizerName, frozenset[OptimizerImpl]] = {
    "adamw": frozenset({"auto", "foreach", "fused", "loop"}),
    "adam": frozenset({"auto", "foreach", "fused", "loop"}),
    "sgd": frozenset({"auto", "foreach", "fused", "loop"}),
    "sgd-momentum": frozenset({"auto", "foreach", "fused", "loop"}),
    "adagrad": frozenset({"auto", "foreach", "fused", "loop"}),
    "adafactor": frozenset({"auto", "foreach", "loop"}),
    "lion": frozenset({"auto", "foreach", "loop"}),
    "adamw-8bit": frozenset({"auto"}),
    "paged-adamw-8bit": frozenset({"auto"}),
}
"""What each optimizer has (signatures in torch.optim; lion_pytorch; bitsandbytes has one kernel of its own)."""

TORCH_OPTIMIZERS: dict[OptimizerName, tuple[str, dict[str, float]]] = {
    "adamw": ("AdamW", {}),
    "adam": ("Adam", {}),
    "sgd": ("SGD", {}),
    "sgd-momentum": ("SGD", {"momentum": SGD_MOMENTUM}),
    "adagrad": ("Adagrad", {}),
    "adafactor": ("Adafactor", {}),
}
"""Name → class in torch.optim and options beside the learning rate; the rest stays torch's default."""

_IMPLEMENTATION_OPTIONS: dict[OptimizerImpl, dict[str, bool]] = {
    "auto": {},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
    "loop": {"foreach": False},
}


def make_optimizer(
    name: OptimizerName, parameters: "Iterable[torch.nn.Parameter]", *, impl: OptimizerImpl = "auto"
) -> "torch.optim.Optimizer":
    """Make an optimizer by its name.

    Parameters may be fake: nothing but shapes and dtypes matters. ``auto`` leaves the choice to the library: torch
    chooses by device, lion-pytorch loops.

    Returns:
        The optimizer. Its state is made at the first step, as in the libraries (Adagrad's when it is made).

    Raises:
        UsageError: The optimizer has no such implementation.
    """
    import torch

    if impl not in IMPLEMENTATIONS[name]:
        known = ", ".join(sorted(IMPLEMENTATIONS[name]))
        raise UsageError(
            f"{name} has no {impl} implementation", where="--optimizer-impl", hint=f"{name} takes: {known}"
        )
    if name in TORCH_OPTIMIZERS:
        kind, options = TORCH_OPTIMIZERS[name]
        made: torch.optim.Optimizer = getattr(torch.optim, kind)(
            parameters, lr=LEARNING_RATE, **options, **_IMPLEMENTATION_OPTIONS[impl]
        )
        return made
    if name == "lion":
        return _optimizer(parameters, _lion_foreach if impl == "foreach" else _lion_loop)
    return _optimizer(parameters, _EightBitAdamW(is_paged=name == "paged-adamw-8bit"))


def _optimizer(parameters: "Iterable[torch.nn.Parameter]", advance: "Advance") -> "torch.optim.Optimizer":
    """An optimizer whose step is ``advance(parameters with gradients, state of a parameter)``."""
    import torch

    class NamedOptimizer(torch.optim.Optimizer):
        """One group after another through ``advance``."""

        @torch.no_grad()
        def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
            """Run the closure, if any, then one update of every parameter that has a gradient."""
            loss = None
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            for group in self.param_groups:
                advance([each for each in group["params"] if each.grad is not None], self.state.__getitem__)
            return loss

    return NamedOptimizer(parameters, {"lr": LEARNING_RATE})


def _momentum(parameter: "torch.Tensor", state: "Callable[[torch.Tensor], dict[str, Any]]") -> "torch.Tensor":
    """Lion's one state, of the parameter's own dtype."""
    import torch

    own = state(parameter)
    if not own:
        own["exp_avg"] = torch.zeros_like(parameter)
    momentum: torch.Tensor = own["exp_avg"]
    return momentum


def _lion_loop(parameters: "Sequence[torch.nn.Parameter]", state: "Callable[[torch.Tensor], dict[str, Any]]") -> None:
    """Lion (Chen et al. 2023, algorithm 2), one parameter at a time; temporaries as in lion_pytorch.py, update_fn."""
    for parameter in parameters:
        _lion_update(parameter, _momentum(parameter, state))


def _lion_update(parameter: "torch.nn.Parameter", momentum: "torch.Tensor") -> None:
    """Two temporaries of the parameter's size, at most both at once; they die on return."""
    gradient = parameter.grad
    assert gradient is not None  # noqa: S101 - the caller chose parameters with gradients; this tells mypy.
    update = momentum.clone().mul_(LION_BETAS[0]).add(gradient, alpha=1 - LION_BETAS[0]).sign_()
    parameter.add_(update, alpha=-LEARNING_RATE)
    momentum.mul_(LION_BETAS[1]).add_(gradient, alpha=1 - LION_BETAS[1])


def _lion_foreach(
    parameters: "Sequence[torch.nn.Parameter]", state: "Callable[[torch.Tensor], dict[str, Any]]"
) -> None:
    """Lion over lists, temporaries as in lion_pytorch/foreach.py: a copy of every momentum at once."""
    momenta = [_momentum(parameter, state) for parameter in parameters]
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not momenta:
        return
    updates = [momentum.clone() for momentum in momenta]
    tensors.foreach_lerp_(updates, gradients, 1 - LION_BETAS[0])
    tensors.foreach_sign_(updates)
    tensors.foreach_add_(list(parameters), updates, alpha=-LEARNING_RATE)
    tensors.foreach_lerp_(momenta, gradients, 1 - LION_BETAS[1])


class _EightBitAdamW:
    """The memory of bitsandbytes' AdamW8bit and PagedAdamW8bit: their states alone, as the kernel updates in place.

    One code map for the signed first moment and one for the unsigned second are shared by all parameters. Paged states
    lie in CUDA managed memory, which torch's allocator never sees: they are made as host tensors, marked ``is_paged``
    as bitsandbytes marks its own. The values mean nothing.
    """

    def __init__(self, *, is_paged: bool) -> None:
        self._is_paged = is_paged
        self._code_maps: dict[str, torch.Tensor] = {}

    def __call__(
        self, parameters: "Sequence[torch.nn.Parameter]", state: "Callable[[torch.Tensor], dict[str, Any]]"
    ) -> None:
        for parameter in parameters:
            own = state(parameter)
            if not own:
                own.update(self._new_state(parameter))
            own["step"] += 1
            _stand_in_for_kernel(parameter)

    def _new_state(self, parameter: "torch.Tensor") -> dict[str, Any]:
        """Optimizer2State.init_state, allocations in its order."""
        import torch

        if parameter.numel() < MIN_8BIT_ELEMENTS:
            small = torch.float32
            return {"step": 0, "state1": self._buffer(parameter, small), "state2": self._buffer(parameter, small)}
        if not self._code_maps:
            names = ("qmap1", "qmap2")
            self._code_maps = {name: parameter.new_zeros(QUANTILES, dtype=torch.float32) for name in names}
        states = {name: self._buffer(parameter, torch.uint8) for name in ("state1", "state2")}
        blocks = -(-parameter.numel() // BLOCK_ELEMENTS)
        maxima = {name: parameter.new_zeros(blocks, dtype=torch.float32) for name in ("absmax1", "absmax2")}
        return {"step": 0, **self._code_maps, **states, **maxima}

    def _buffer(self, parameter: "torch.Tensor", dtype: "torch.dtype") -> "torch.Tensor":
        """Optimizer8bit.get_state_buffer."""
        import torch

        if not self._is_paged or parameter.numel() < MIN_PAGED_ELEMENTS:
            return torch.zeros_like(parameter, dtype=dtype)
        # No device is named, which makes it a host tensor even where the parameters' device is the default.
        buffer = torch.zeros(parameter.shape, dtype=dtype)
        buffer.is_paged = True  # type: ignore[attr-defined]
        return buffer


def _stand_in_for_kernel(parameter: "torch.nn.Parameter") -> None:
    """One op that reads the gradient and writes the parameter in place, as bitsandbytes' update kernel does."""
    assert parameter.grad is not None  # noqa: S101 - the caller chose parameters with gradients; this tells mypy.
    # optimizer_update_8bit_blockwise takes contiguous memory only; Optimizer2State.update_step makes it so first.
    parameter.grad = parameter.grad.contiguous()
    parameter.add_(parameter.grad, alpha=-LEARNING_RATE)
