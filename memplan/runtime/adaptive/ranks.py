"""What the ranks of a job agree on: a few integers at a time, over gloo, so that no device waits."""

from collections.abc import Sequence
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from memplan.errors import MemplanError

DEFAULT_TIMEOUT = 600.0
"""Seconds, as torch's own for NCCL (``torch.distributed.constants.default_pg_nccl_timeout``)."""


class Ranks:
    """The ranks that have to do the same; without a group this process alone, and then nothing is exchanged.

    Not thread-safe: all ranks must call the same methods in the same order.

    Args:
        group: The process group whose ranks agree; ``torch.distributed.group.WORLD`` for all.
        timeout: Seconds that a rank waits for the others before it gives up.
    """

    def __init__(self, group: dist.ProcessGroup | None = None, *, timeout: float = DEFAULT_TIMEOUT) -> None:
        self.group = group
        """Whose gradients are averaged."""
        self.timeout = timeout
        """Seconds."""
        self._words: dist.ProcessGroup | None = None
        if group is not None and dist.get_world_size(group) > 1:
            # A group of its own: agreement must not mix with the job's collectives, and takes place on the host.
            self._words = dist.new_group(
                dist.get_process_group_ranks(group),
                timeout=timedelta(seconds=timeout),
                backend="gloo",
                use_local_synchronization=True,
            )

    @classmethod
    def of(cls, module: nn.Module) -> "Ranks":
        """Those of DistributedDataParallel; of any other module this process alone."""
        return cls(module.process_group) if isinstance(module, DistributedDataParallel) else cls()

    @property
    def count(self) -> int:
        """How many."""
        return 1 if self._words is None else dist.get_world_size(self._words)

    @property
    def position(self) -> int:
        """Which of them this is, from 0."""
        return 0 if self._words is None else dist.get_rank(self._words)

    def minimum(self, values: Sequence[int]) -> tuple[int, ...]:
        """The least that any rank gave, place by place; as many values on every rank, within 64 bits.

        Raises:
            MemplanError: The others did not come in time, or are gone.
        """
        if self._words is None:
            return tuple(values)
        exchanged = torch.tensor(values, dtype=torch.int64)
        try:
            dist.all_reduce(exchanged, op=dist.ReduceOp.MIN, group=self._words)
        except RuntimeError as error:
            rank = self.position
            raise MemplanError(
                f"rank {rank} of {self.count} could not agree with the others within {self.timeout:g} s: {error}",
                hint="another rank has died, waits in a collective of its own, or made fewer steps; its log says which",
            ) from error
        return tuple(exchanged.tolist())

    def each(self, value: int) -> tuple[int, ...]:
        """What every rank gave, in the order of the ranks; less than 2**62.

        Raises:
            MemplanError: The others did not come in time, or are gone.
        """
        if self._words is None:
            return (value,)
        own = self.position
        return self.minimum([value if rank == own else 1 << 62 for rank in range(self.count)])

    def any(self, flag: bool) -> bool:
        """Does any rank say yes?

        Raises:
            MemplanError: The others did not come in time, or are gone.
        """
        return self.minimum((-int(flag),)) == (-1,)

    def all(self, flag: bool) -> bool:
        """Do all ranks say yes?

        Raises:
            MemplanError: The others did not come in time, or are gone.
        """
        return self.minimum((int(flag),)) == (1,)
