"""Host memory of a DataLoader: against a real one's shared memory, and what its options change."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset

from memplan.replay.data_pipeline import PAGE, data_pipeline

BATCH = 4
NUMBERS, LABEL = 1300, 2
SHARED = "/dev/shm/torch_"
"""How files of torch's shared memory are called; they have no name in the folder any more."""


class Samples(Dataset[Any]):
    """Samples of two tensors, as many as anybody wants."""

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.full((NUMBERS,), float(index)), torch.zeros(LABEL, dtype=torch.int64)


def shared_files(processes: list[int]) -> dict[int, int]:
    """Inode → bytes of every file of torch's shared memory that a process has open or mapped."""
    found: dict[int, int] = {}
    for process in processes:
        found |= {inode: nbytes for inode, nbytes in (*_open(process), *_mapped(process)) if nbytes}
    return found


def _open(process: int) -> Iterator[tuple[int, int]]:
    for each in Path(f"/proc/{process}/fd").iterdir():
        with suppress(OSError):  # Closed in the meantime.
            if SHARED in str(each.readlink()):
                facts = each.stat()
                yield facts.st_ino, facts.st_blocks * 512


def _mapped(process: int) -> Iterator[tuple[int, int]]:
    for line in Path(f"/proc/{process}/maps").read_text().splitlines():
        if SHARED in line:
            addresses, _, _, _, inode, *_ = line.split()
            first, _, end = addresses.partition("-")
            yield int(inode), int(end, 16) - int(first, 16)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux")
@pytest.mark.parametrize(("workers", "prefetch"), [(1, 1), (2, 3)])
def test_batches_are_those_of_a_real_loader(workers: int, prefetch: int) -> None:
    loader = DataLoader(Samples(), batch_size=BATCH, num_workers=workers, prefetch_factor=prefetch)
    batches = iter(loader)
    for _ in range(5):
        held = next(batches)
    sizes = [tensor.nbytes for tensor in held]
    predicted = data_pipeline(sizes, workers=workers, prefetch=prefetch, pin=False).batches
    processes = [os.getpid(), *(worker.pid for worker in batches._workers)]  # type: ignore[attr-defined]
    files, patience = shared_files(processes), time.monotonic() + 20
    while sum(files.values()) < predicted and time.monotonic() < patience:
        time.sleep(0.02)
        files = shared_files(processes)
    time.sleep(0.3)  # Long enough for workers that were to make more.
    files = shared_files(processes)
    assert len(files) == (workers * prefetch + 1) * len(sizes)
    assert sum(files.values()) == predicted


sizes = st.lists(st.integers(0, 10**7), min_size=1, max_size=5)


@given(sizes, st.integers(1, 16), st.integers(1, 8))
def test_pinned_blocks_are_powers_of_two_and_stay_beside_what_workers_share(
    batch: list[int], workers: int, prefetch: int
) -> None:
    plain = data_pipeline(batch, workers=workers, prefetch=prefetch, pin=False)
    pinned = data_pipeline(batch, workers=workers, prefetch=prefetch, pin=True)
    assert plain.pinned == 0
    assert plain.samples == pinned.samples == workers * sum(batch)
    blocks = [min(1 << power for power in range(25) if 1 << power >= nbytes) for nbytes in batch if nbytes]
    assert pinned.pinned == (workers * prefetch + 1) * sum(blocks)
    one = plain.batches - pinned.batches
    assert plain.batches == (workers * prefetch + 1) * one
    assert sum(batch) <= one < sum(batch) + PAGE * len(batch)


def test_without_workers_the_loop_waits_for_one_batch() -> None:
    found = data_pipeline([3000, 100], workers=0, prefetch=None, pin=True)
    assert (found.samples, found.batches, found.pinned) == (3100, 3100, 4096 + 128)
    assert found.total == 2 * 3100 + 4224


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")  # Told where there are fewer cores.
def test_two_batches_for_each_worker_unless_told_otherwise() -> None:
    # torch's own default, read from a real loader.
    default = DataLoader(Samples(), num_workers=3).prefetch_factor
    assert data_pipeline([PAGE], workers=3, prefetch=None, pin=False) == data_pipeline(
        [PAGE], workers=3, prefetch=default, pin=False
    )
