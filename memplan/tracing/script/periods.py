"""Where the steps of a program that runs by itself begin and end.

A step is what happens from one step of the optimizer that steps first to its next; in a program without an optimizer
object, from one backward to the next. Recording begins with the first forward of the step in which that optimizer
steps for the first time.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from memplan.seam.replace import Replacement, attribute, replaced
from memplan.tracing.parameter_kinds import elements
from memplan.tracing.place import in_placement_order
from memplan.tracing.recorder import Recorder
from memplan.tracing.records import ModelFacts
from memplan.tracing.steps import Steps

_INIT = "torch.optim.Optimizer.__init__"
_BACKWARD = "torch.autograd.backward"


class StepRepeated(BaseException):
    """A step left what it found. Programs that catch ``Exception`` let it pass."""


class Periods:
    """Notes a program's steps and ends it when one repeats.

    Args:
        recorder: Records them.
        progress: Told which step runs.
    """

    def __init__(self, recorder: Recorder, progress: Callable[[str], None]) -> None:
        self.steps = Steps(recorder)
        """The steps so far."""
        self.optimizers: list[Any] = []
        """All that were made, in order."""
        self.roots: list[torch.nn.Module] = []
        """Modules that the program called itself, in order."""
        self._recorder = recorder
        self._progress = progress
        self._first: Any = None
        """The optimizer whose steps count."""
        self._depth = 0
        self._has_begun = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Follow optimizers, backward passes and modules while the context lasts."""
        make, backward = attribute(_INIT), attribute(_BACKWARD)

        def made(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
            make(optimizer, *args, **kwargs)
            self.optimizers.append(optimizer)

        def went_back(*args: Any, **kwargs: Any) -> Any:
            result = backward(*args, **kwargs)
            if not self.optimizers:
                self._end_step()
            return result

        with ExitStack() as stack:
            stack.enter_context(replaced((Replacement(_INIT, made), Replacement(_BACKWARD, went_back))))
            for handle in (
                register_optimizer_step_post_hook(self._stepped),
                register_module_forward_pre_hook(self._called),
            ):
                stack.callback(handle.remove)
            yield

    def facts(self) -> ModelFacts:
        """Return how many parameters the called modules have, and how many of them learn."""
        parameters = {id(each): each for root in self.roots for each in root.parameters()}.values()
        learning = [each for each in parameters if each.requires_grad]
        return ModelFacts(parameters=sum(map(elements, parameters)), trainable_parameters=sum(map(elements, learning)))

    def _called(self, module: torch.nn.Module, _: object) -> None:
        if self._recorder.attribution.is_inside_module:
            return
        if not any(root is module for root in self.roots):
            self.roots.append(module)
            if self._has_begun:
                self._name(module)
        if self.optimizers and not self._has_begun and torch.is_grad_enabled():
            self._begin()

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        self._first = optimizer if self._first is None else self._first
        if optimizer is self._first:
            self._end_step()

    def _begin(self) -> None:
        self._has_begun = True
        for root in self.roots:
            self._name(root)
        self._begin_step()

    def _begin_step(self) -> None:
        self._progress(f"tracing step {len(self.steps.ranges) + 1}")
        self.steps.begin()

    def _end_step(self) -> None:
        if not self._has_begun:
            self._begin()
            return
        self.steps.end()
        if not self.steps.goes_on:
            raise StepRepeated
        self._begin_step()

    def _name(self, root: torch.nn.Module) -> None:
        """Learn the names of a model's modules, and which storages are its parameters and buffers."""
        self._recorder.attribution.name_modules(root)
        for prefix, module in in_placement_order("", root):
            for role, tensors in (("parameter", module._parameters), ("buffer", module._buffers)):
                for name, tensor in tensors.items():
                    if tensor is not None and not self._recorder.is_host(tensor):
                        self._recorder.adopt(tensor, role=role, name=prefix + name, moves=False)  # type: ignore[arg-type]
