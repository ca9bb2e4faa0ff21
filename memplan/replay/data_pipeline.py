"""Host memory of torch's ``DataLoader``: batches on their way from its workers to the loop.

    worker: samples ──collate──► shared memory ──queue──► pin-memory thread ──► pinned block ──► the loop's hands

After ``torch/utils/data/dataloader.py`` (torch 2.13). ``_MultiProcessingDataLoaderIter`` keeps ``num_workers x
prefetch_factor`` batches on their way and asks for the next one as soon as it hands one over, so that many wait while
the loop holds one more. Which of them wait in shared memory and which are pinned already depends on who is late, so
that each kind is counted at its most.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from memplan.replay.policy import PinnedPolicy
from memplan.units import Bytes

PAGE: Final = 4096
"""Shared memory is mapped by pages (x86-64 and most arm64 kernels); a tensor that travels has a file of its own."""
DEFAULT_PREFETCH: Final = 2
"""``prefetch_factor`` where workers are given and it is not (``DataLoader.__init__``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPipeline:
    """Most host memory of one rank's data loader, by kind."""

    samples: Bytes
    """Single samples while they are collated (``_utils/fetch.py``): one batch of them in every process that fetches."""
    batches: Bytes
    """Collated batches: of workers in shared memory, without workers in the process's own."""
    pinned: Bytes
    """Page-locked blocks, which the caching allocator keeps once it made them."""
    on_their_way: int
    """Batches that workers have made or are about to; 0 without workers."""
    workers: int
    """Processes beside the training one."""

    @property
    def total(self) -> Bytes:
        """All of it."""
        return Bytes(self.samples + self.batches + self.pinned)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the figures rest on, for the report."""
        made = f"{self.on_their_way} batches made ahead" if self.workers else "no batch made ahead"
        held = f"{made} and one in the loop's hands, samples of the batch's shapes and types"
        return (f"data loader, at most: {held}, and all workers collating at once",)

    @property
    def not_modelled(self) -> tuple[str, ...]:
        """What they leave out, for the report."""
        return (f"{self.workers} data workers' own processes and the data set",) if self.workers else ("the data set",)


def data_pipeline(batch: Sequence[int], *, workers: int, prefetch: int | None, pin: bool) -> DataPipeline:
    """What a ``DataLoader`` holds at most, beside the data set itself.

    Args:
        batch: Bytes of each tensor of one batch, as it comes from the loader.
        workers: ``num_workers``; 0 makes each batch when the loop asks for it.
        prefetch: ``prefetch_factor``; None for torch's default.
        pin: ``pin_memory``.
    """
    pinned = sum(PinnedPolicy().round_size(nbytes) for nbytes in batch if nbytes) if pin else 0
    if not workers:
        return _counted(sum(batch), sum(batch), pinned, ahead=0, workers=0)
    ahead = workers * (DEFAULT_PREFETCH if prefetch is None else prefetch)
    shared = sum(-(-nbytes // PAGE) * PAGE for nbytes in batch)
    # The batch in the loop's hands is shared memory itself, unless what it holds is the pinned copy.
    in_shared_memory = (ahead + (not pin)) * shared
    return _counted(workers * sum(batch), in_shared_memory, (ahead + 1) * pinned, ahead=ahead, workers=workers)


def _counted(samples: int, batches: int, pinned: int, *, ahead: int, workers: int) -> DataPipeline:
    return DataPipeline(
        samples=Bytes(samples), batches=Bytes(batches), pinned=Bytes(pinned), on_their_way=ahead, workers=workers
    )
