"""DeepSpeed's engine in a program: the installed library runs itself, and its compiled kernels are played.

DeepSpeed compiles its kernels where a program first asks for them, with nvcc for the GPU that is there. What its
optimizers ask for updates tensors in place and takes no memory.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from types import ModuleType
from typing import Any

import torch

from memplan.errors import EstimateError
from memplan.seam.replace import Replacement, attribute, replaced
from memplan.tracing.script.boundaries import Boundaries
from memplan.tracing.sharding.zero.disk import Disk

_STEP = "deepspeed.runtime.engine.DeepSpeedEngine._take_model_step"
_LOAD = "deepspeed.ops.op_builder.builder.OpBuilder.load"
_MAKE = "deepspeed.initialize"


class Engines:
    """Lets a program use DeepSpeed.

    Args:
        boundaries: Told of each step of an engine.
        disk: What is offloaded to NVMe.
    """

    def __init__(self, boundaries: Boundaries, disk: Disk) -> None:
        self._boundaries = boundaries
        self._disk = disk

    def played(self, _: ModuleType, stack: ExitStack, __: object) -> None:
        """Replace what cannot run without a GPU, for as long as the program runs."""
        # Importing what follows takes half a second, and not every torch has it.
        from memplan.tracing.sharding.zero.world import on_fake_tensors

        stack.enter_context(on_fake_tensors(self._disk))
        stack.enter_context(replaced(self._table()))

    def _table(self) -> Iterator[Replacement]:
        take, make = attribute(_STEP), attribute(_MAKE)

        def take_step(engine: Any, *args: Any, **kwargs: Any) -> None:
            # ZeRO's optimizers step once for each group of parameters.
            with self._boundaries.of_engine():
                take(engine, *args, **kwargs)
            self._boundaries.stepped(engine)

        def initialize(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
            from memplan.tracing.sharding.zero.loop import name_parts

            # Some step once, to have their states.
            with self._boundaries.of_engine():
                made: tuple[Any, ...] = make(*args, **kwargs)
            name_parts(made[0])
            return made

        yield Replacement(_STEP, take_step)
        yield Replacement(_MAKE, initialize)
        yield Replacement(_LOAD, lambda builder, *_, **__: _Library(builder.name))


class _Library:
    """What ``OpBuilder.load`` returns: the compiled kernels of an optimizer."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in _KERNELS:
            raise EstimateError(
                f"DeepSpeed's {self._name} is compiled for the GPU, and {name} of it cannot be played",
                hint="give DeepSpeed an optimizer of torch's own: deepspeed.initialize(optimizer=...)",
            )
        return _KERNELS[name]


@torch.no_grad()
def _update(_: int, __: torch.Tensor, lists: Sequence[Sequence[torch.Tensor]], *___: Any) -> None:
    """Update the tensors of all lists but the first by those of the first, the gradients (csrc/adam, csrc/lion)."""
    for gradient, *written in zip(*lists, strict=True):
        for each in written:
            each.add_(gradient)


def _on_host(*_: Any) -> None:
    """The update of an optimizer whose states lie on the host (csrc/adam/cpu_adam.cpp), in place."""


_KERNELS: dict[str, Callable[..., Any]] = {
    "multi_tensor_adam": _update,
    "multi_tensor_lion": _update,
    **dict.fromkeys(
        ("create_adam", "adam_update", "destroy_adam", "create_lion", "lion_update", "destroy_lion",
         "create_adagrad", "adagrad_update", "destroy_adagrad"),
        _on_host,
    ),
}  # fmt: skip
"""Kernel of a compiled library → what stands for it."""
