"""A pool of tensors: memory that is kept between uses, in blocks of few sizes, within a bound."""

import logging
import math
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import torch

from memplan.errors import UsageError, several
from memplan.runtime.pools.block import Line, PoolBlock, where
from memplan.runtime.pools.blocks import Blocks
from memplan.runtime.pools.buckets import PAGE
from memplan.runtime.pools.handles import Lease, Movable, Scope
from memplan.runtime.pools.memory import memory_of, tensor_in
from memplan.runtime.pools.planned import planned_sizes
from memplan.runtime.pools.records import PoolSite, PoolStatistics
from memplan.runtime.pools.slabs import SLAB
from memplan.units import MIB, parse_size

_log = logging.getLogger("memplan")


class TensorPool:
    """Tensors whose memory is kept and given out again. Thread-safe; not to be used in a process forked from this one.

    ::

        pool = TensorPool(limit="8GiB")
        with pool.take((1024, 1024), torch.bfloat16) as tensor: ...
        with pool.scope() as scope: tensor = scope.take((1024, 1024))

    Blocks given back are used again only when no tensor, array of NumPy or graph of autograd is left in them. On other
    devices than the CPU nothing is kept, for PyTorch's allocator keeps it better; accounts, limit and leaks are alike.

    Args:
        device: Where tensors are.
        limit: Most bytes held, cached ones among them; None: no limit.
        max_fragmentation: Share of what is held that was never asked for at once. What is cached beyond goes back to
            the system before more is allocated. Slabs come on top of it where nearly all tensors are small.
        threshold: Requests of at most so many bytes share slabs of 2 MiB, larger ones have memory of their own.
        compact_at: Share of the slabs that may be free: beyond it, movable tensors move together by themselves and
            empty slabs go back (``compact``). It is looked at once for each slab's worth that comes back; None: never.

    Raises:
        UsageError: An argument is out of its range; names all of them.
    """

    def __init__(
        self,
        *,
        device: torch.device | str = "cpu",
        limit: int | str | None = None,
        max_fragmentation: float = 0.1,
        threshold: int = MIB,
        compact_at: float | None = None,
    ) -> None:
        most = _limit(limit)
        problems = [
            *([] if most is None or most >= 0 else [f"limit: {limit!r} is no size; write for example 8GiB, or bytes"]),
            *([] if 0 <= max_fragmentation < 1 else [f"max_fragmentation: {max_fragmentation} is not in [0, 1)"]),
            *([] if 0 <= threshold <= SLAB else [f"threshold: {threshold} is not between 0 and {SLAB} (a slab)"]),
            *([] if compact_at is None or 0 <= compact_at < 1 else [f"compact_at: {compact_at} is not in [0, 1)"]),
        ]
        if problems:
            raise several(problems)
        self.device = torch.device(device)
        """Where tensors are."""
        self._blocks = Blocks(
            memory_of(self.device),
            limit=most,
            max_fragmentation=max_fragmentation,
            threshold=threshold,
            compact_at=compact_at,
        )

    def take(self, shape: tuple[int, ...] | int, dtype: torch.dtype | None = None) -> Lease:
        """A contiguous tensor on loan; its values are whatever was there, as ``torch.empty``'s.

        Args:
            shape: Its shape.
            dtype: Its type; None: PyTorch's default.

        Raises:
            PoolFullError: There is no room within the limit.
            UsageError: The pool is closed.
        """
        return self._take(shape, dtype, 1)

    def scope(self) -> Scope:
        """Tensors until the end of a ``with``: ``with pool.scope() as scope: a = scope.take(shape)``."""
        return Scope(self._take)

    def movable(self, shape: tuple[int, ...] | int, dtype: torch.dtype | None = None) -> Movable:
        """A tensor that ``compact`` may move while nobody uses it.

        Raises:
            PoolFullError: There is no room within the limit.
            UsageError: The pool is closed.
        """
        return Movable(self._blocks, *self._block(shape, dtype, 1, may_move=True))

    def compact(self) -> int:
        """Move what may move out of sparse slabs and give these back; everything moves or stays as a whole slab.

        Returns:
            Bytes given back to the system.
        """
        return self._blocks.compact()

    def adjust(self) -> tuple[int, ...]:
        """Fit the sizes of large blocks to what was asked for. It happens by itself as misses double, from 64 on.

        Returns:
            The sizes.
        """
        return self._blocks.adjust()

    def prepare(self, plan: Path | str | Mapping[int, int], *, touch: bool = True) -> None:
        """Allocate what a plan says will be alive at once.

        Args:
            plan: A file of ``memplan reuse-plan TARGET --json``, or size → how many.
            touch: Write to every page, so that the first use need not wait for the system.

        Raises:
            PoolFullError: It does not fit within the limit.
            UsageError: The file cannot be read.
        """
        most = Counter(plan) if isinstance(plan, Mapping) else planned_sizes(Path(plan))
        self._blocks.prepare(most, _touch if touch else None)

    def trim(self, keep: int = 0) -> int:
        """Give cached memory back to the system until at most ``keep`` bytes are cached.

        Returns:
            Bytes given back.
        """
        return self._blocks.trim(keep)

    def statistics(self) -> PoolStatistics:
        """The accounts, exact at this moment."""
        with self._blocks.lock:
            self._blocks.tidy()
            return self._blocks.accounts.statistics()

    def taken(self) -> tuple[PoolSite, ...]:
        """Lines whose tensors were not given back yet, most bytes first."""
        return self._blocks.sites(leaked=False)

    def leaks(self) -> tuple[PoolSite, ...]:
        """Lines whose handles were dropped without giving back, most bytes first. Their memory is the pool's again."""
        return self._blocks.sites(leaked=True)

    def close(self) -> tuple[PoolSite, ...]:
        """Give everything back that nobody uses; what is still taken goes back when it is given back.

        Returns:
            Lines whose tensors are still taken.
        """
        self._blocks.close()
        return self.taken()

    def __enter__(self) -> Self:
        """The pool."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; what is still taken is logged."""
        for site in self.close():
            _log.warning("pool closed: %d tensors of %s are still taken, %d bytes", site.count, site.where, site.nbytes)

    def _take(self, shape: tuple[int, ...] | int, dtype: torch.dtype | None, depth: int) -> Lease:
        block, line, full, kind = self._block(shape, dtype, depth + 1)
        try:
            return Lease(self._blocks, block, line, block.tensor(full, kind))
        except BaseException:
            self._blocks.give_back(block)
            raise

    def _block(
        self, shape: tuple[int, ...] | int, dtype: torch.dtype | None, depth: int, *, may_move: bool = False
    ) -> tuple[PoolBlock, Line, tuple[int, ...], torch.dtype]:
        frame = sys._getframe(depth + 1)  # noqa: SLF001 - the way of ``warnings`` and ``logging``, without a walk.
        line = frame.f_code, frame.f_lineno
        full = (shape,) if isinstance(shape, int) else shape
        kind = dtype or torch.get_default_dtype()
        if full and min(full) < 0:
            raise UsageError(f"no tensor has the shape {full}", where=where(line))
        return self._blocks.take(math.prod(full) * kind.itemsize, line, may_move=may_move), line, full, kind


def _limit(limit: int | str | None) -> int | None:
    """In bytes; -1 for what is no size."""
    if isinstance(limit, str):
        try:
            return parse_size(limit)
        except ValueError:
            return -1
    return limit


def _touch(storage: torch.UntypedStorage) -> None:
    tensor_in(storage, (storage.nbytes(),), torch.uint8)[::PAGE].zero_()
