"""Real ranks: processes that meet over gloo, forked from the server that has torch imported."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import start_processes


def real_ranks(told: Callable[[int, int], object], ranks: int, folder: Path) -> list[Any]:
    """Return what a function of a rank and the number of ranks returns in each of so many processes.

    Args:
        told: At module level; its answer can be written as JSON.
        ranks: How many processes.
        folder: Where they meet: an empty one.
    """
    start_processes(_rank, (told, ranks, folder), nprocs=ranks, start_method="forkserver")
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]


def _rank(rank: int, told: Callable[[int, int], object], ranks: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=ranks)
    (folder / f"{rank}.json").write_text(json.dumps(told(rank, ranks)))
    dist.barrier()
    # A group that modules still hold keeps its threads; now and then, the end of the interpreter aborts with them.
    os._exit(0)
