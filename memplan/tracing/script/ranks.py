"""Process groups of a program: the ranks that memplan plays are there already."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import distributed

from memplan.seam.distributed import FakeStore
from memplan.seam.replace import Replacement, replaced

ALONE = "init_process_group() makes a group of one rank, and sends nothing"


@contextmanager
def played_ranks(assume: Callable[[str], None]) -> Iterator[None]:
    """Let a program set up its process group, which exists where ``--parallel`` or a launcher says how many ranks.

    Args:
        assume: Told where it is of one rank.
    """
    if not distributed.is_available():
        yield
        return
    begin = distributed.init_process_group
    made: list[bool] = []

    def init_process_group(*_: Any, **__: Any) -> None:
        if not distributed.is_initialized():
            assume(ALONE)
            begin("fake", store=FakeStore(), rank=0, world_size=1)
            made.append(True)

    def nothing(*_: Any, **__: Any) -> None:
        """Nobody else is there to wait for."""

    table = (
        Replacement("torch.distributed.init_process_group", init_process_group),
        Replacement("torch.distributed.barrier", nothing),
        Replacement("torch.distributed.destroy_process_group", nothing),
    )
    end = distributed.destroy_process_group
    with replaced(table):
        try:
            yield
        finally:
            if made and distributed.is_initialized():
                end()
