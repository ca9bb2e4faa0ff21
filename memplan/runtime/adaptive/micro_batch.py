"""A training step that survives running out of memory: done again in smaller micro-batches, with equal gradients."""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import torch
from torch import nn

from memplan.errors import UsageError, several
from memplan.runtime.adaptive.averaging import average_gradients, local, refuse_meeting_ranks
from memplan.runtime.adaptive.batches import samples_of, shares_of, split_batch
from memplan.runtime.adaptive.oom import first_line, forget, is_oom, release_memory
from memplan.runtime.adaptive.pace import NO_LIMIT, Pace, after_oom, after_step
from memplan.runtime.adaptive.ranks import Ranks
from memplan.runtime.adaptive.records import MicroBatches
from memplan.runtime.adaptive.rewind import StepState

_log = logging.getLogger("memplan")

Reduction = Literal["mean", "sum"]
"""How a loss puts its samples (or tokens) together."""
DEFAULT_PATIENCE = 100
"""Good steps before a larger size is tried: a try that fails costs one step, so about a hundredth of the time."""


class AutoMicroBatch:
    """Forward and backward of a batch in as few micro-batches as memory allows.

    A call leaves in ``.grad`` what the whole batch's loss would have left there, up to rounding: every micro-batch
    counts by its share of the weight. Where memory runs out, in forward or backward, on this rank or another, the call
    goes back to where it began, gradients, buffers and random numbers included, and takes micro-batches of half the
    size. The size is kept for the next calls, and a larger one is tried after ``patience`` good ones.

    Equal are only gradients of losses that are sums, or weighted means, over samples. Batch normalisation in training,
    dropout's masks and losses between samples of a batch depend on how it is split, as always with accumulation.

    With several ranks the gradients are averaged after all have come through, not during backward: a rank that dies in
    backward would leave the others in a collective. Models whose ranks meet inside of a step (FSDP, tensor
    parallelism, synchronised batch norms) are refused for the same reason. Optimizers that run in backward cannot be
    undone: do not use them here. Not thread-safe.

    Args:
        module: What is trained; in DistributedDataParallel or not.
        loss_for: Gives the loss of a micro-batch, a scalar. It may be called again for the same samples.
        reduction: Is that loss the ``mean`` of its samples, or their ``sum``?
        weight: What the mean of a micro-batch is divided by: samples (the default), or labels that count. Micro-batches
            of weight 0 are left out.
        samples: Counts the samples of a batch.
        split: Cuts a batch into parts of at most some samples.
        micro_batch: Samples in a micro-batch at the beginning; None: the whole batch.
        backward: Runs backward: ``lambda loss: scaler.scale(loss).backward()``.
        patience: Good steps before a larger size is tried.
        ranks: Who agrees; None: those of DistributedDataParallel.
        release: Gives memory back before the step is done again.

    Raises:
        UsageError: A number makes no sense, or the module's ranks meet inside of a step.
    """

    def __init__(
        self,
        module: nn.Module,
        loss_for: Callable[[Any], torch.Tensor],
        *,
        reduction: Reduction = "mean",
        weight: Callable[[Any], float | torch.Tensor] | None = None,
        samples: Callable[[Any], int] = samples_of,
        split: Callable[[Any, int], Iterable[Any]] = split_batch,
        micro_batch: int | None = None,
        backward: Callable[[torch.Tensor], object] = torch.Tensor.backward,
        patience: int = DEFAULT_PATIENCE,
        ranks: Ranks | None = None,
        release: Callable[[], object] = release_memory,
    ) -> None:
        _refuse_wrong(reduction, micro_batch, patience, is_weighted=weight is not None)
        self.module = module
        """What is trained."""
        refuse_meeting_ranks(module)
        self._ranks = Ranks.of(module) if ranks is None else ranks
        self._loss_for, self._backward, self._release = loss_for, backward, release
        self._samples, self._split, self._weight = samples, split, weight or samples
        self._is_mean = reduction == "mean"
        self._pace = Pace(size=micro_batch or NO_LIMIT, wait=patience)

    @property
    def micro_batch(self) -> int | None:
        """Samples in a micro-batch at most; None while nothing has failed."""
        return None if self._pace.size == NO_LIMIT else self._pace.size

    def __call__(self, batch: Any) -> MicroBatches:
        """Forward and backward of a batch; the optimizer's step is yours.

        Raises:
            torch.OutOfMemoryError: Even a single sample is too much, on this rank or another. Gradients, buffers and
                random numbers are as they were before.
            UsageError: The batch cannot be split.
            MemplanError: The other ranks did not come.
        """
        total = self._samples(batch)
        state = StepState(self.module)
        try:
            answer = self._until_it_fits(batch, total, state)
            if self._ranks.count > 1:
                average_gradients(state.parameters, self._ranks)
        except BaseException:
            state.undo()
            raise
        state.keep()
        return answer

    def _until_it_fits(self, batch: Any, total: int, state: StepState) -> MicroBatches:
        retries = 0
        while True:
            attempt = self._attempt(batch, total)
            if attempt.error is not None:
                forget(attempt.error)
            # All that ranks have to know of each other, at once: what died, and the same sizes from here on.
            failed, most, size = self._ranks.minimum((attempt.failed, -total, self._pace.size))
            self._pace = replace(self._pace, size=size)
            if failed == NO_LIMIT:
                self._pace = after_step(self._pace, -most)
                return MicroBatches(loss=torch.as_tensor(attempt.loss), samples=tuple(attempt.samples), retries=retries)
            state.rewind()
            if failed == 1:
                said = first_line(attempt.error) if attempt.error else "on another rank"
                raise torch.OutOfMemoryError(f"a micro-batch of one sample is too large: {said}") from attempt.error
            self._pace = after_oom(self._pace, failed)
            retries += 1
            _log.warning("a micro-batch of %d samples ran out of memory: %d from here on", failed, self._pace.size)
            self._release()

    def _attempt(self, batch: Any, total: int) -> "_Attempt":
        attempt = _Attempt()
        try:
            for part, share in self._shares(batch, total):
                attempt.samples.append(self._samples(part))
                attempt.loss = attempt.loss + self._micro_step(part, share)
        except Exception as error:
            if not is_oom(error):
                raise
            attempt.error = error
            attempt.failed = attempt.samples[-1] if attempt.samples else min(total, self._pace.size)
        return attempt

    def _shares(self, batch: Any, total: int) -> Iterator[tuple[Any, float]]:
        """Micro-batches, and what the loss of each is multiplied by."""
        if total <= self._pace.size:
            yield batch, 1.0
            return
        parts = list(self._split(batch, self._pace.size))
        largest = max(map(self._samples, parts))
        if largest > self._pace.size:
            raise UsageError(f"split= gave {largest} samples where {self._pace.size} were the most that was asked for")
        yield from shares_of(parts, self._weight) if self._is_mean else ((part, 1.0) for part in parts)

    def _micro_step(self, part: Any, share: float) -> torch.Tensor:
        with local(self.module):
            loss = self._loss_for(part)
            if share != 1.0:
                loss = loss * share
            self._backward(loss)
        return loss.detach()


@dataclass(slots=True)
class _Attempt:
    """One way through the micro-batches, or to where it died."""

    samples: list[int] = field(default_factory=list)
    """Size of every micro-batch that was begun."""
    loss: torch.Tensor | float = 0.0
    """Of those that came through."""
    error: Exception | None = None
    """Why the last one died."""
    failed: int = NO_LIMIT
    """Its samples, or what there is no limit to where none did."""


def _refuse_wrong(reduction: str, micro_batch: int | None, patience: int, *, is_weighted: bool) -> None:
    wrong = [] if reduction in get_args(Reduction) else [f"reduction must be mean or sum, not '{reduction}'"]
    if is_weighted and reduction == "sum":
        wrong.append("weight= is what a mean is divided by; a sum has none")
    if micro_batch is not None and micro_batch < 1:
        wrong.append(f"micro_batch must be at least 1, not {micro_batch}")
    if patience < 1:
        wrong.append(f"patience must be at least 1, not {patience}")
    if wrong:
        raise several(wrong)
