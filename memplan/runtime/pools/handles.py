"""What a request returns: a tensor on loan, several of them, or one that may move."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

import torch

from memplan.errors import UsageError
from memplan.runtime.pools.block import Line, PoolBlock, where
from memplan.runtime.pools.blocks import Blocks


class _Handle:
    """One block that is taken. Its garbage gives the block back, and counts as a leak."""

    __slots__ = ("_block", "_blocks", "_line")

    def __init__(self, blocks: Blocks, block: PoolBlock, line: Line) -> None:
        self._blocks, self._line = blocks, line
        self._block: PoolBlock | None = block

    def give_back(self) -> None:
        """Give the memory back; a second time does nothing."""
        block, self._block = self._block, None
        if block is not None:
            self._blocks.give_back(block)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give back."""
        self.give_back()

    def __del__(self) -> None:
        """Leave the block to the pool's next call: a finalizer may run where the lock is held."""
        block: PoolBlock | None = getattr(self, "_block", None)
        if block is not None:
            self._blocks.dropped.append(block)

    def _gone(self) -> UsageError:
        return UsageError("this tensor was given back to its pool", where=f"taken at {where(self._line)}")


class Lease(_Handle):
    """A tensor on loan: ``with pool.take(shape, dtype) as tensor:``. For one thread at a time."""

    __slots__ = ("_tensor",)

    def __init__(self, blocks: Blocks, block: PoolBlock, line: Line, tensor: torch.Tensor) -> None:
        # Not through ``super()``: half a microsecond.
        self._blocks, self._line, self._block = blocks, line, block
        self._tensor: torch.Tensor | None = tensor

    @property
    def tensor(self) -> torch.Tensor:
        """The tensor; its values are whatever was there.

        Raises:
            UsageError: It was given back.
        """
        if self._tensor is None:
            raise self._gone()
        return self._tensor

    def give_back(self) -> None:
        """Give the memory back. It is used again when nobody has a tensor in it: names, views, arrays, graphs."""
        block, self._block, self._tensor = self._block, None, None
        if block is not None:
            self._blocks.give_back(block)

    def __enter__(self) -> torch.Tensor:
        """The tensor."""
        return self.tensor


class Movable(_Handle):
    """A tensor whose memory ``pool.compact()`` may move. Thread-safe.

    Look up ``tensor`` each time: while somebody has a tensor of it, it stays where it is.
    """

    __slots__ = ("_dtype", "_shape")

    def __init__(
        self, blocks: Blocks, block: PoolBlock, line: Line, shape: tuple[int, ...], dtype: torch.dtype
    ) -> None:
        super().__init__(blocks, block, line)
        self._shape, self._dtype = shape, dtype

    @property
    def tensor(self) -> torch.Tensor:
        """A tensor of where it is now.

        Raises:
            UsageError: It was given back.
        """
        with self._blocks.lock:
            if self._block is None:
                raise self._gone()
            return self._block.tensor(self._shape, self._dtype)

    def __enter__(self) -> Self:
        """The handle itself."""
        return self


class Scope:
    """Tensors that are all given back at its end: ``with pool.scope() as scope:``. For one thread."""

    def __init__(self, take: Callable[[tuple[int, ...] | int, torch.dtype | None, int], Lease]) -> None:
        self._take = take
        self._leases: list[Lease] = []
        self._is_open = False

    def take(self, shape: tuple[int, ...] | int, dtype: torch.dtype | None = None) -> torch.Tensor:
        """A tensor until the end of the scope.

        Raises:
            PoolFullError: There is no room within the pool's limit.
            UsageError: The scope has not begun, or has ended.
        """
        if not self._is_open:
            raise UsageError("the scope is not open", hint="with pool.scope() as scope: scope.take(…)")
        lease = self._take(shape, dtype, 1)
        self._leases.append(lease)
        return lease.tensor

    def __enter__(self) -> Self:
        """Begin."""
        self._is_open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give everything back, the last first."""
        self._is_open = False
        while self._leases:
            self._leases.pop().give_back()
