"""Steps of an unmodified program inside one preallocated arena, on the CPU.

    recording = record(step)            the step runs once: sizes, and who is alive when
    arena = Arena(plan)                 where each allocation goes (memplan.plan.reuse makes the plan)
    with arena: output = step()         the n-th allocation lies at the n-th offset

Kernels, autograd and user code run as ever and ask PyTorch for memory as ever: results are the same bit for bit. A step
that takes another way than the recorded one is served by PyTorch's allocator from there on, and ``counts`` says so.
"""

import logging
from collections.abc import Callable
from types import TracebackType
from typing import Self

import torch

from memplan.runtime.arena import native
from memplan.runtime.arena.records import CPU_ALIGNMENT, ArenaCounts, ArenaPlan, StepRecording
from memplan.runtime.meters.cuda import device_count
from memplan.runtime.native import claim, release

_log = logging.getLogger("memplan")

_outlived: list[torch.Tensor] = []
"""Arenas in which somebody still has a tensor: their memory must stay."""


def record(step: Callable[[], object]) -> StepRecording:
    """Run a step once and write down what it allocates.

    What the step returns is dropped when the recording has ended, so that outputs outlive it.

    Raises:
        MemplanError: The allocator cannot be compiled, or is in use.
    """
    native.library()
    on_cards = _requests_of_cards()
    _begin("recording")
    try:
        native.start_recording()
        try:
            result = step()
        finally:
            native.stop()
        found = native.recording()
        del result
    finally:
        release()
    if on_cards := _requests_of_cards() - on_cards:
        _log.warning(
            "%d allocations of this step are on CUDA devices: "
            "they stay with PyTorch's allocator, an arena is of CPU tensors",
            on_cards,
        )
    return found


class Arena:
    """One preallocated buffer, and where each allocation of a step that allocates as planned goes in it.

    Raises:
        MemplanError: The allocator cannot be compiled.
    """

    def __init__(self, plan: ArenaPlan) -> None:
        self.plan = plan
        """What it was made for."""
        self.counts: ArenaCounts | None = None
        """What became of the last step's allocations; None before the first."""
        native.library()
        self._buffer = torch.empty(plan.height + CPU_ALIGNMENT, dtype=torch.uint8)
        self._address = -(-self._buffer.data_ptr() // CPU_ALIGNMENT) * CPU_ALIGNMENT

    def __enter__(self) -> Self:
        """Begin a step."""
        _begin("a step in an arena")
        native.start_playing(self._address, self.plan.height, self.plan.sizes, self.plan.offsets)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """End the step: what is allocated from here on is PyTorch's business."""
        native.stop()
        self.counts = native.counts()
        release()

    def __del__(self) -> None:
        """Keep the memory where somebody still has a tensor in it."""
        if self.counts is not None and native.counts().alive:
            _outlived.append(self._buffer)


def _requests_of_cards() -> int:
    """How many the caching allocator has served so far; a device that nobody uses yet has none."""
    stats = (torch.cuda.memory_stats(index) for index in range(device_count()))
    return sum(each.get("allocation.all.allocated", 0) for each in stats)


def _begin(what: str) -> None:
    claim(what)
    if not native.counts().alive:
        _outlived.clear()
