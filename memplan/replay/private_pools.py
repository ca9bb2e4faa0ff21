"""Pools beside the default one: of CUDA graphs, and of ``torch.cuda.MemPool``.

Inside a private pool the same rules hold as outside. It keeps the most that it ever needed until nobody uses it any
more *and* the cache is flushed. Rules after ``beginAllocateToPool``, ``endAllocateToPool`` and ``releasePool`` in
``c10/cuda/CUDACachingAllocator.cpp`` (torch 2.13). Not modelled: pools with an allocator of their own, ``no_split``,
``use_on_oom``, and captures of some streams or threads only: while a pool is open, every allocation goes there.
"""

from collections.abc import Iterable, Iterator

from memplan.errors import MemplanError
from memplan.replay.blocks import Block, Pool
from memplan.replay.records import DEFAULT_POOL

Pools = dict[tuple[int, bool], Pool]
"""By stream, and whether it is the small one."""


class PrivatePools:
    """Which private pools there are, who uses them, and which is open."""

    def __init__(self) -> None:
        self.default: Pools = {}
        """Outside all private pools."""
        self._pools: dict[int, Pools] = {}
        self._users: dict[int, int] = {}
        self._open: list[int] = []

    @property
    def capturing(self) -> bool:
        """Is any private pool open?"""
        return bool(self._open)

    @property
    def owner(self) -> int:
        """The pool that allocations go to."""
        return self._open[-1] if self._open else DEFAULT_POOL

    def current(self) -> Pools:
        """What allocations go to."""
        return self.of(self.owner)

    def of(self, owner: int) -> Pools:
        """One pool's lists of free blocks; a private one that does not exist yet gets one user."""
        if owner == DEFAULT_POOL:
            return self.default
        self._users.setdefault(owner, 1)
        return self._pools.setdefault(owner, {})

    def all(self) -> Iterator[Pool]:
        """Every list of free blocks, of the default pool and of private ones."""
        for pools in (self.default, *self._pools.values()):
            yield from pools.values()

    def begin(self, owner: int) -> None:
        """Send allocations to a pool, as one more user of it."""
        if owner == DEFAULT_POOL:
            raise MemplanError("pool 0 is the default one, which cannot be begun")
        if owner in self._open:
            raise MemplanError(f"pool {owner} is open already")
        if self._users.get(owner) == 0:
            raise MemplanError(f"pool {owner} has been released and cannot be begun again before it is empty")
        self._users[owner] = self._users.get(owner, 0) + 1
        self._open.append(owner)

    def end(self, owner: int) -> None:
        """Send no more allocations to a pool."""
        if owner not in self._open:
            raise MemplanError(f"pool {owner} is not open")
        self._open.remove(owner)

    def release(self, owner: int) -> None:
        """One user fewer."""
        if not self._users.get(owner):
            raise MemplanError(f"pool {owner} has no user that could release it")
        self._users[owner] -= 1

    def released(self, owner: int = DEFAULT_POOL) -> tuple[int, ...]:
        """Private pools without users; only the given one, if it is private."""
        return tuple(pool for pool, users in self._users.items() if not users and owner in {DEFAULT_POOL, pool})

    def forget(self, owner: int, heads: Iterable[Block]) -> None:
        """Drop a released pool if it has no segments: its name may be used again."""
        if all(head.pool.owner != owner for head in heads):
            del self._users[owner]
            self._pools.pop(owner, None)

    def fingerprint(self) -> tuple[object, ...]:
        """What decides its future besides the blocks."""
        return tuple(sorted(self._users.items())), tuple(self._open)
