"""Putting a process where its placement says."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from memplan.errors import UsageError
from memplan.runtime.numa import syscalls
from memplan.runtime.numa.placement import Demand, RankPlacement
from memplan.runtime.numa.plan import place
from memplan.runtime.numa.topology import this_machine
from memplan.units import Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What came of it."""

    cpus: tuple[int, ...]
    """What this thread may run on now."""
    threads: int
    """Threads that were moved; those whose affinity somebody had already set are left alone."""
    policy: str
    """Memory policy now: ``preferred 0``, ``bind 0``, or ``default``."""
    reasons: tuple[str, ...]
    """What did not work, and why; empty: all did."""


def my_placement(*, workers: int = 0, pinned_bytes: int = 0) -> RankPlacement:
    """The placement of this process, from ``LOCAL_RANK`` and ``LOCAL_WORLD_SIZE`` as torchrun sets them.

    Every rank must see all the GPUs of the machine, as under torchrun. Where each sees its own only, plan beforehand.

    Raises:
        UsageError: The variables are not there or do not fit together.
    """
    rank, size = os.environ.get("LOCAL_RANK", ""), os.environ.get("LOCAL_WORLD_SIZE", "")
    if not (rank.isdecimal() and size.isdecimal() and int(rank) < int(size)):
        what = f"LOCAL_RANK is '{rank}' and LOCAL_WORLD_SIZE '{size}'"
        raise UsageError(what, hint="start the ranks with torchrun, or plan with memplan.runtime.numa.plan.place")
    demand = Demand(ranks=int(size), workers=workers, pinned_bytes=Bytes(pinned_bytes))
    return place(this_machine(), demand).ranks[int(rank)]


@contextmanager
def bind(rank: RankPlacement, *, strict: bool = False) -> Iterator[Bound]:
    """Run on the rank's CPUs and take memory from its node, then put all back. What is refused is told, not raised.

    For the main thread, early: threads that run already are moved along where nobody else has bound them; memory
    policy is of the calling thread, and of the threads that it starts.

    Args:
        rank: Where to.
        strict: Memory of this node or none, rather than preferably of this node.
    """
    reasons: list[str] = []
    moved = _move_threads(set(rank.cpus), reasons)
    before = _policy(reasons)
    if before is not None:
        mode = syscalls.BIND if strict else syscalls.PREFERRED
        _try(lambda: syscalls.set_policy(mode, [rank.memory_node]), reasons)
    try:
        yield Bound(
            cpus=tuple(sorted(_affinity(0))), threads=len(moved), policy=_policy_words(), reasons=tuple(reasons)
        )
    finally:
        for thread, cpus in moved.items():
            with suppress(OSError):  # It may have ended.
                os.sched_setaffinity(thread, cpus)
        if before is not None:
            with suppress(OSError):
                syscalls.set_policy(*before)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerBinding:
    """``DataLoader(worker_init_fn=WorkerBinding(workers=rank.workers))``; can be pickled."""

    workers: tuple[tuple[int, ...], ...]
    """CPUs of each worker."""

    def __call__(self, worker: int) -> None:
        """Bind the calling worker; where that is refused, it stays on the rank's CPUs."""
        with suppress(OSError):
            os.sched_setaffinity(0, self.workers[worker % len(self.workers)])


def _move_threads(cpus: set[int], reasons: list[str]) -> dict[int, set[int]]:
    """Move this thread (0), and those that are as free as it was; returns what each could run on before."""
    try:
        here = _affinity(0)
        os.sched_setaffinity(0, cpus)
    except (OSError, AttributeError) as error:
        reasons.append(f"CPUs: {error}")
        return {}
    moved = {0: here}
    for name in _threads():
        with suppress(OSError):  # It may have ended.
            if _affinity(name) == here:
                os.sched_setaffinity(name, cpus)
                moved[name] = here
    return moved


def _threads() -> list[int]:
    folder = Path("/proc/self/task")
    return [int(entry.name) for entry in folder.iterdir()] if folder.is_dir() else []


def _affinity(thread: int) -> set[int]:
    return os.sched_getaffinity(thread)


def _policy(reasons: list[str]) -> tuple[int, tuple[int, ...]] | None:
    try:
        return syscalls.get_policy()
    except OSError as error:
        reasons.append(f"memory policy: {error.strerror}")
        return None


def _policy_words() -> str:
    with suppress(OSError):
        mode, nodes = syscalls.get_policy()
        return f"{syscalls.MODE_NAMES.get(mode, str(mode))} {','.join(map(str, nodes))}".rstrip()
    return "default"


def _try(action: Callable[[], None], reasons: list[str]) -> None:
    try:
        action()
    except OSError as error:
        reasons.append(f"memory policy: {error.strerror}")
