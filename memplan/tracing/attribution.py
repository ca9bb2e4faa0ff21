"""Who asked for an op: module path, source line and phase, in forward and in backward.

Forward: a stack of running modules (PyTorch's global module hooks) and the innermost Python frame outside torch and
memplan. Backward: autograd gives every node a sequence number when the forward op creates it, and the op running in
backward finds its forward op by that number.
"""

import contextlib
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from traceback import walk_tb
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from memplan.job.usercode import display
from memplan.seam.autograd import current_graph_task_id, get_sequence_nr
from memplan.tracing.records import Phase

_NO_BACKWARD = -1
"""What autograd answers where none runs."""

_TORCH = str(Path(torch.__file__).parent)
_MEMPLAN = str(Path(__file__).parents[1])
_FOREIGN = (_TORCH, _MEMPLAN, contextlib.__file__, "<")
"""Files that are never the user's line; a context manager as a decorator calls what it decorates from contextlib."""
_ACCUMULATE = 2**64 - 1
"""Sequence number of every AccumulateGrad node (torch/csrc/autograd/functions/accumulate_grad.cpp)."""

INSIDE_FSDP = "_fsdp_wrapped_module."
"""What FSDP1's wrapper puts into the names of all that it wraps (distributed/fsdp/_common_utils.py FSDP_PREFIX)."""


class OpOwner(NamedTuple):
    """Module path and source line of an op."""

    module: str
    source: str


NOBODY = OpOwner("", "")


class Attribution:
    """Keeps track of running modules, and remembers for every autograd node which op created it."""

    def __init__(self) -> None:
        self.optimizers: list[torch.optim.Optimizer] = []
        """Optimizers seen stepping."""
        self._names: dict[int, str] = {}
        self._stack: list[tuple[int, str]] = []
        self._forward: dict[int, OpOwner] = {}
        self._shown: dict[str, str] = {}
        self._in_optimizer = 0
        self._backward_before = _NO_BACKWARD
        self._after_backward = False

    def name_modules(self, model: torch.nn.Module, *, under: str = "") -> None:
        """Learn the paths of a model's modules under a name; without one the root has the empty path."""
        self._names.update(
            (id(module), name.replace(INSIDE_FSDP, "")) for name, module in model.named_modules(prefix=under)
        )

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Follow modules and optimizers while the context lasts."""
        with ExitStack() as stack:
            for handle in (
                register_module_forward_pre_hook(self._enter_module),
                register_module_forward_hook(self._leave_module, always_call=True),
                register_optimizer_step_pre_hook(self._enter_optimizer),
                register_optimizer_step_post_hook(self._leave_optimizer),
            ):
                stack.callback(handle.remove)
            yield

    @contextmanager
    def within(self, module: torch.nn.Module) -> Iterator[None]:
        """Say that a module runs though nobody calls it: a checkpoint runs its ``forward`` again in backward."""
        self._enter_module(module, None)
        try:
            yield
        finally:
            self._leave_module(module)

    def begin_forward(self) -> None:
        """Say that what follows belongs to the next forward, though no module runs yet (a loop makes its batch)."""
        self._after_backward = False

    def failing_module(self, error: BaseException) -> str | None:
        """Path of the innermost named module in whose forward an exception was raised; None outside modules."""
        name = None
        for frame, _ in walk_tb(error.__traceback__):
            name = self._names.get(id(frame.f_locals.get("self")), name)
        return name or None

    @property
    def runs_module(self) -> bool:
        """Does a module run now?"""
        return bool(self._stack)

    @property
    def is_inside_module(self) -> bool:
        """Was a module entered from within another, or from code that belongs to one?"""
        return len(self._stack) > 1

    @property
    def steps_optimizer(self) -> bool:
        """Does an optimizer run now?"""
        return self._in_optimizer > 0

    @property
    def runs_backward(self) -> bool:
        """Does a node of backward run now, if need be in the closure that an optimizer calls?"""
        task = current_graph_task_id()
        return task != _NO_BACKWARD and not (self._in_optimizer and task == self._backward_before)

    def phase(self, *, in_backward: bool) -> Phase:
        """The phase of the op that runs now."""
        if in_backward:
            self._after_backward = True
            return "backward"
        if self._in_optimizer or (self._after_backward and not self._stack):
            return "optimizer"
        return "forward"

    def forward_owner(self) -> OpOwner:
        """The owner of an op that runs now outside backward."""
        module = self._stack[-1][1] if self._stack else ""
        owner = OpOwner(module, self._source(sys._getframe(2)))
        if torch.is_grad_enabled():
            # The first op after a node was made is the one the node differentiates; later ones made no node.
            self._forward.setdefault(get_sequence_nr() - 1, owner)
        return owner

    def backward_owner(self, node: Any) -> OpOwner:
        """The owner of an op that runs now for an autograd node (recomputation included)."""
        if self._stack:
            # A checkpointed block recomputes its forward inside backward, and its modules run again.
            return self.forward_owner()
        sequence = node._sequence_nr()
        return NOBODY if sequence == _ACCUMULATE else self._forward.get(sequence, NOBODY)

    def _source(self, frame: FrameType | None) -> str:
        while frame is not None:
            filename = frame.f_code.co_filename
            shown = self._shown.get(filename)
            if shown is None:
                foreign = filename.startswith(_FOREIGN)
                shown = self._shown[filename] = "" if foreign else display(filename)
            if shown:
                return f"{shown}:{frame.f_lineno}"
            frame = frame.f_back
        return ""

    def _enter_module(self, module: torch.nn.Module, _: object) -> None:
        parent = self._stack[-1][1] if self._stack else ""
        if not self._stack and not self._in_optimizer:
            self._after_backward = False
        self._stack.append((id(module), self._names.get(id(module), parent)))

    def _leave_module(self, module: torch.nn.Module, *_: object) -> None:
        # A module that raised (early stop of a recomputation) may have left children on the stack.
        while self._stack and self._stack.pop()[0] != id(module):
            pass

    def _enter_optimizer(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        if not self._in_optimizer:
            self._backward_before = current_graph_task_id()
        self._in_optimizer += 1
        if not any(known is optimizer for known in self.optimizers):
            self.optimizers.append(optimizer)

    def _leave_optimizer(self, *_: object) -> None:
        self._in_optimizer -= 1
