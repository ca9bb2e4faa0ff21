"""Micro-batches of transformers' Trainer that repeat the one before them: most of what a step that accumulates takes.

Three run, and the last, as in memplan's own loop (``memplan.tracing.turns``). Those between are left out and counted;
their batches, which Trainer fetches before the first, are there.
"""

from collections.abc import Callable, Hashable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any
from unittest import mock

import torch

from memplan.seam.pytree import tree_flatten
from memplan.tracing.recorder import Recorder
from memplan.tracing.records import Turn
from memplan.tracing.script.hub import older_trainer
from memplan.tracing.turns import MICRO_BATCHES

_PLAIN = (int, float, bool, str, type(None))


class FewMicroBatches:
    """Lets a few of the micro-batches of each step run.

    Args:
        recorder: Told what stands for the others.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._kind: Hashable = None
        self._begun: list[tuple[int, int]] = []
        """Ops and events before each micro-batch in a row of those that are alike, as far as they ran."""
        self._loss: Callable[[], torch.Tensor] = partial(torch.zeros, ())

    def of_trainer(self, module: ModuleType, stack: ExitStack, assume: Callable[[str], None]) -> None:
        """Leave out what repeats, beside what scripts for older releases need (``hub.older_trainer``)."""
        older_trainer(module, stack, assume)
        step = module.Trainer.training_step

        def training_step(trainer: Any, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
            is_inner = not trainer.accelerator.sync_gradients and not trainer.is_deepspeed_enabled
            if self._repeats(_kind(inputs) if is_inner else None):
                return self._loss()
            loss: torch.Tensor = step(trainer, model, inputs, *args, **kwargs)
            self._loss = partial(torch.zeros, loss.shape, dtype=loss.dtype, device=loss.device)
            return loss

        stack.enter_context(mock.patch.object(module.Trainer, "training_step", training_step))

    def _repeats(self, kind: Hashable) -> bool:
        """Is a micro-batch of this kind like the two before it? Of None nobody knows."""
        recorder = self._recorder
        if kind is None or kind != self._kind:
            self._begun.clear()
        self._kind = kind
        if len(self._begun) > MICRO_BATCHES:
            recorder.turns[-1] = replace(recorder.turns[-1], further=recorder.turns[-1].further + 1)
            return True
        if kind is None or (not recorder.recording and self._begun):
            return False
        self._begun.append((len(recorder.ops), len(recorder.ledger.events)))
        if len(self._begun) <= MICRO_BATCHES:
            return False
        _, (former_op, former_event), (first_op, first_event), (end_op, end_event) = self._begun
        turn = Turn(
            former_op=former_op,
            former_event=former_event,
            first_op=first_op,
            end_op=end_op,
            first_event=first_event,
            end_event=end_event,
            further=1,
        )
        recorder.turns.append(turn)
        return True


def _kind(inputs: Any) -> Hashable:
    """What makes two micro-batches alike; None where that is not known."""
    leaves, structure = tree_flatten(inputs)
    if not all(isinstance(leaf, (torch.Tensor, *_PLAIN)) for leaf in leaves):
        return None
    of_each = ((leaf.shape, leaf.dtype) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves)
    return (str(structure), *of_each)
