"""`memplan.runtime.pools`: what a request costs beside `torch.empty`, what is held for it, and a soak."""

import gc
import os
import random
import statistics
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import cycle, islice
from multiprocessing import get_context
from typing import Any

import psutil
import torch

from memplan.runtime.pools.pool import TensorPool
from memplan.runtime.pools.records import PoolStatistics
from memplan.runtime.pools.store.store import BufferStore
from memplan.units import KIB, MIB, format_bytes
from runtime_figures.figure import Figure

COMMON = (4 * KIB, 256 * KIB, 4 * MIB, 16 * MIB, 64 * MIB)
"""Sizes of one tensor. glibc keeps freed memory up to 32 MiB, and gives larger ones back to the system."""
PAGE = 4096
USES: dict[str, Callable[[torch.Tensor], object]] = {
    "untouched": id,
    "one byte of each page written": lambda tensor: tensor[::PAGE].fill_(1),
    "all bytes written": lambda tensor: tensor.fill_(1),
}
"""What is done with a tensor while it is there."""
STUDENT = 2.10
"""97.5 % of Student's t with 18 degrees of freedom: a line through 20 points."""


def figures(*, quick: bool) -> Iterator[Figure]:
    """All of them."""
    torch.set_num_threads(1)
    yield from overheads(3 if quick else 300)
    yield from totals(3 if quick else 1000)
    # Apart, too, and not forked: a forked process maps its parent's pages one by one as it comes to them.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        yield from process.submit(soaked, 10_000 if quick else 1_000_000).result()
    yield from latencies(200 if quick else 20_000)
    yield from fragmentation(20 if quick else 1000)
    yield from storing(5 if quick else 200)


def latencies(calls: int) -> Iterator[Figure]:
    """Percentiles of single calls in a steady state, alternating with PyTorch's; memory is not touched."""
    pool = TensorPool()
    for size in COMMON:
        ours, theirs = [], []
        for _ in range(calls):
            started = time.perf_counter_ns()
            lease = pool.take(size, torch.uint8)
            ours.append(time.perf_counter_ns() - started)
            lease.give_back()
            started = time.perf_counter_ns()
            tensor = torch.empty(size, dtype=torch.uint8)
            theirs.append(time.perf_counter_ns() - started)
            del tensor
        yield Figure(
            f"take of {format_bytes(size)}, p50 / p99 / p99.9 of {calls} calls (`torch.empty` beside it, untouched)",
            f"{_percentiles(ours)} µs ({_percentiles(theirs)})",
            "p99 ≤ 100 µs",
            _percentile(ours, 0.99) <= 100_000,
        )


def overheads(rounds: int) -> Iterator[Figure]:
    """Take, use and return beside `torch.empty`, use and del: median of the ratios of neighbouring rounds."""
    # A process for each row, forked from this one, which has allocated nothing yet: what a heap has seen before decides
    # whether glibc keeps what is freed.
    for how in USES:
        for size, number in (*((size, 1) for size in COMMON), (256 * MIB, 1), (16 * MIB, 16)):
            with ProcessPoolExecutor(1, mp_context=get_context("fork")) as process:
                yield process.submit(overhead, how, size, number, rounds).result()


def overhead(how: str, size: int, number: int, rounds: int) -> Figure:
    """One row: so many tensors alive at once, then all of them gone."""
    pool, use = TensorPool(), USES[how]

    def ours() -> None:
        with pool.scope() as scope:
            for _ in range(number):
                use(scope.take(size, torch.uint8))

    def theirs() -> None:
        kept = []
        for _ in range(number):
            kept.append(torch.empty(size, dtype=torch.uint8))
            use(kept[-1])

    rounds = max(3, min(rounds, rounds * 64 * MIB // (size * number)))
    ours(), theirs()
    times = [(_seconds(ours), _seconds(theirs)) for _ in range(rounds)]
    ratio = statistics.median(mine / other for mine, other in times) - 1
    mine, other = (statistics.median(column) * 1e6 / number for column in zip(*times, strict=True))
    what = format_bytes(size) if number == 1 else f"{number} times {format_bytes(size)} alive at once"
    return Figure(
        f"overhead of take + return over `torch.empty` + del, {what}, {how}",
        f"{ratio:+.1%} ({mine:.1f} µs each beside {other:.1f})",
        "< 5 %",
        ratio < 0.05,
    )


def totals(steps: int) -> Iterator[Figure]:
    """All of a loop's takes, writes and returns; each in a process that has allocated nothing else before."""
    # The others in fewer steps: a step of mixed lengths writes 350 MB, twice.
    for what, share, huge, number in (
        ("mixed lengths", 0.1, False, steps),
        ("mixed lengths", 0.3, False, -(-steps // 4)),
        ("mixed lengths", 0.1, True, -(-steps // 4)),
        ("equal lengths", 0.1, False, steps),
        ("small tensors", 0.1, False, steps),
    ):
        if huge:
            os.environ["THP_MEM_ALLOC_ENABLE"] = "1"
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            yield process.submit(total, what, share, number).result()
        os.environ.pop("THP_MEM_ALLOC_ENABLE", None)
    yield alone(-(-steps // 10))


def total(what: str, share: float, steps: int) -> Figure:
    """Seconds of all steps through a pool beside `torch.empty`; every byte of every tensor is written once."""
    torch.set_num_threads(1)
    pool, other = TensorPool(max_fragmentation=share), os.environ.get("THP_MEM_ALLOC_ENABLE")
    workload = {
        "mixed lengths": mixed_steps(steps),
        "equal lengths": (step for step in mixed_steps(1) for _ in range(steps)),
        "small tensors": small_steps(steps),
    }[what]

    times = []
    for index, step in enumerate(workload):
        # In turns, who is first: the second finds the caches full of the other's memory either way.
        sides = (pool, None) if index % 2 else (None, pool)
        seconds = {side: _seconds(partial(written, step, side)) for side in sides}
        times.append((seconds[pool], seconds[None]))
    mine, peer = (sum(column) for column in zip(*times, strict=True))
    ratio = statistics.median(one / two for one, two in times) - 1
    return Figure(
        f"total of take + write all + return over `torch.empty` + write all + del, {steps} steps of {what}, "
        f"max_fragmentation={share}" + (", `THP_MEM_ALLOC_ENABLE=1`" if other else ""),
        f"{mine / peer - 1:+.1%} ({mine:.2f} s beside {peer:.2f}), median of steps {ratio:+.1%}, "
        f"{_hits(pool.statistics())}",
        "< 5 %",
        mine / peer < 1.05,
    )


def alone(steps: int, rounds: int = 3) -> Figure:
    """The same with a process for each side, where glibc's heap ends with the last tensor and goes back each step."""
    times = []
    for _ in range(rounds):
        pair = []
        for share in (0.1, None):
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                pair.append(process.submit(seconds_alone, steps, share).result())
        times.append(pair)
    ratio = statistics.median(mine / peer for mine, peer in times) - 1
    mine, peer = (statistics.median(column) for column in zip(*times, strict=True))
    return Figure(
        f"total of take + write all + return over `torch.empty` + write all + del, {steps} steps of mixed lengths, "
        "max_fragmentation=0.1, each side in a process of its own",
        f"{ratio:+.1%} ({mine:.2f} s beside {peer:.2f})",
        "< 5 %",
        ratio < 0.05,
    )


def seconds_alone(steps: int, share: float | None) -> float:
    """Of one side; None: `torch.empty`."""
    torch.set_num_threads(1)
    pool = None if share is None else TensorPool(max_fragmentation=share)
    return sum(_seconds(partial(written, step, pool)) for step in mixed_steps(steps))


def written(step: Sequence[tuple[int, int]], pool: TensorPool | None) -> None:
    """One step: every byte of every tensor is written once."""
    if pool is None:
        tensors: dict[int, torch.Tensor] = {}
        for key, size in step:
            if size:
                tensors[key] = torch.empty(size, dtype=torch.uint8)
                tensors[key].fill_(1)
            else:
                del tensors[key]
        return
    leases: dict[int, Any] = {}
    for key, size in step:
        if size:
            leases[key] = pool.take(size, torch.uint8)
            leases[key].tensor.fill_(1)
        else:
            leases.pop(key).give_back()


def small_steps(steps: int) -> Iterator[list[tuple[int, int]]]:
    """Requests of 64 bytes to 600 KB, all of it glibc's own cache."""
    rng = random.Random(8)
    for _ in range(steps):
        sizes = [rng.choice((64, 512, 3072, 9216, 12_288, 70_000, 600_000)) for _ in range(100)]
        ends = rng.sample(range(100), 100)
        yield [*enumerate(sizes), *((key, 0) for key in ends)]


def fragmentation(steps: int) -> Iterator[Figure]:
    """Steps of a training loop with batches of mixed lengths; every policy sees the same requests."""
    workload = list(mixed_steps(steps))
    most = max(alive for step in workload for alive in _alive(step))
    for share in (0.1, 0.3):
        pool = TensorPool(max_fragmentation=share)
        for step in workload:
            leases = {}
            for key, size in step:
                if size:
                    leases[key] = pool.take(size, torch.uint8)
                else:
                    leases.pop(key).give_back()
        found = pool.statistics()
        assert found.peak_in_use_bytes == most
        yield Figure(
            f"fragmentation (held - live peak) / held after {steps} steps of mixed sizes, max_fragmentation={share}",
            f"{found.fragmentation:.1%} of {format_bytes(found.peak_held_bytes)}, {_hits(found)}",
            "< 10 %" if share == 0.1 else "",
            found.fragmentation < 0.1 if share == 0.1 else None,
        )
    for name, rounding in (("powers of two", _power), ("exact sizes", lambda size: size)):
        held, ratio = caching(workload, rounding)
        yield Figure(
            f"the same steps, plain caching of {name}, nothing evicted",
            f"{1 - most / held:.1%} of {format_bytes(held)}, {ratio:.1%} hits",
        )


def mixed_steps(steps: int) -> Iterator[list[tuple[int, int]]]:
    """Requests of a small transformer's step: (key, bytes), 0 bytes for its end. Lengths are log-normal."""
    rng = random.Random(8)
    for _ in range(steps):
        length = min(2048, max(32, int(rng.lognormvariate(6, 0.7))))
        saved: list[int] = []
        step: list[tuple[int, int]] = []
        for key in range(0, 12 * 4, 4):
            for part, width in enumerate((768, 3 * 768, 4 * 768, length)):
                step.append((key + part, 4 * 2 * length * width))
                saved.append(key + part)
            step.append((1000 + key, rng.choice((512, 3072, 9216, 12_288, 600_000))))
            step.append((1000 + key, 0))
        step.append((999, 4 * 2 * length * 8000))
        step.append((999, 0))
        step.extend((key, 0) for key in reversed(saved))
        yield step


def _alive(step: Sequence[tuple[int, int]]) -> Iterator[int]:
    sizes: dict[int, int] = {}
    alive = 0
    for key, size in step:
        alive += size or -sizes[key]
        sizes[key] = size
        yield alive


def caching(workload: Sequence[Sequence[tuple[int, int]]], rounding: Callable[[int], int]) -> tuple[int, float]:
    """Bytes that a cache of free blocks by size holds in the end, and its share of hits."""
    free: Counter[int] = Counter()
    held = hits = takes = 0
    for step in workload:
        sizes: dict[int, int] = {}
        for key, size in step:
            if size:
                block = sizes[key] = rounding(size)
                takes += 1
                hits += free[block] > 0
                held += 0 if free[block] else block
                free[block] -= free[block] > 0
            else:
                free[sizes[key]] += 1
    return held, hits / takes


def _power(size: int) -> int:
    return 1 << (size - 1).bit_length()


def soaked(operations: int) -> list[Figure]:
    """The soak's figures at once, after a short one: code is loaded page by page."""
    torch.set_num_threads(1)
    list(soak(min(operations, 20_000)))
    return list(soak(operations))


def soak(operations: int, threads: int = 4) -> Iterator[Figure]:
    """Takes and returns of all sizes from several threads; what each writes must be there when it returns.

    As a loop of training does, each thread repeats its step of 500 requests; the pool is prepared for the moment at
    which all of them have most, which chance would bring about only after a long time. The growth is the second half's.
    """
    pool, wrong, done = TensorPool(), [], defaultdict(int)
    process, readings = psutil.Process(), []
    before = process.memory_info().rss

    pool.prepare(sum((most_of(seed) for seed in range(threads)), Counter()))

    def work(seed: int) -> None:
        mine: list[Any] = []
        for size, number, gone in islice(requests(seed), operations // 2 // threads):
            lease = pool.take(size, torch.uint8)
            lease.tensor[::PAGE] = number
            mine.append((lease, number))
            if len(mine) > 10:
                old, there = mine.pop(gone)
                if not old.tensor[::PAGE].eq(there).all():
                    wrong.append(seed)
                old.give_back()
            done[seed] += 2
        for lease, _ in mine:
            lease.give_back()

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(threads)]
    started = time.monotonic()
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        readings.append((sum(done.copy().values()), process.memory_info().rss, pool.statistics().held_bytes))
        time.sleep(0.02 if operations < 100_000 else 0.2)
    seconds = time.monotonic() - started
    found = pool.statistics()
    lost = found.takes - found.returns + found.leaks + found.in_use_bytes + found.pending_bytes + len(wrong)
    pool.trim()
    left, after = pool.statistics().held_bytes, process.memory_info().rss
    yield Figure(
        f"soak: {found.takes + found.returns} takes and returns by {threads} threads, lost or overwritten",
        f"{lost}; {left} bytes held after trim; {_hits(found)}, {seconds / operations * 1e6:.0f} µs each",
        "0",
        lost == left == 0 and found.takes + found.returns >= operations // threads * threads,
    )
    yield Figure(
        "soak: resident memory after it and a trim, beside before it",
        f"{(after - before) / MIB:+.1f} MiB (most during it: {max(reading[1] for reading in readings) / MIB:.0f} MiB)",
        "< 1 % more",
        after < before * 1.01,
    )
    for name, column in (("resident memory of the process", 1), ("bytes held by the pool", 2)):
        yield slope(name, [(reading[0], reading[column]) for reading in readings if reading[0] > operations / 2])


def requests(seed: int) -> Iterator[tuple[int, int, int]]:
    """One thread's: bytes, what is written, and which of the eleven that it has then goes. They repeat."""
    rng = random.Random(seed)
    step = [
        (
            rng.choice((64, 3000, 70_000, 600_000, MIB + 1, 2 * MIB, rng.randrange(1, 3 * MIB))),
            rng.randrange(256),
            rng.randrange(11),
        )
        for _ in range(500)
    ]
    return cycle(step)


def most_of(seed: int) -> Counter[int]:
    """Sizes that one thread has at the moment of most bytes."""
    mine: list[int] = []
    most: list[int] = []
    for size, _, gone in islice(requests(seed), 10_000):
        mine.append(size)
        most = max(most, mine.copy(), key=sum)
        if len(mine) > 10:
            mine.pop(gone)
    return Counter(most)


def slope(name: str, points: Sequence[tuple[int, int]]) -> Figure:
    """Growth over the soak's second half, by a line through the means of 20 stretches."""
    if len(points) < 20:
        return Figure(f"soak: growth of {name}", "too short to tell")
    parts = [points[index * len(points) // 20 : (index + 1) * len(points) // 20] for index in range(20)]
    x, y = ([statistics.fmean(point[axis] for point in part) for part in parts] for axis in (0, 1))
    line = statistics.linear_regression(x, y)
    spread = sum((b - line.intercept - line.slope * a) ** 2 for a, b in zip(x, y, strict=True)) / 18
    error = STUDENT * (spread / sum((a - statistics.fmean(x)) ** 2 for a in x)) ** 0.5
    low, high = (1e6 * (line.slope + sign * error) / MIB for sign in (-1, 1))
    mean = statistics.fmean(y) / MIB
    return Figure(
        f"soak: growth of {name} in its second half, MiB in a million operations (95 % interval; mean {mean:.0f} MiB)",
        f"{1e6 * line.slope / MIB:+.2f} ({low:+.2f} … {high:+.2f})",
        "the interval holds 0",
        low <= 0,
    )


def storing(items: int) -> Iterator[Figure]:
    """Appending and reading items of 1 MiB beside a list of clones; the disk's part is the page cache."""
    item = torch.randn(MIB // 4).to(torch.bfloat16).repeat(2)
    clones: list[torch.Tensor] = []
    kept = statistics.median(_seconds(lambda: clones.append(item.clone())) for _ in range(items))
    clone = statistics.median(_seconds(item.clone) for _ in range(items))
    for name, limit, level in (
        ("memory", 4096 * MIB, None),
        ("disk", 0, None),
        ("memory, zstd level 1", 4096 * MIB, 1),
    ):
        with BufferStore(limit=limit, compression=level) as store:
            append = statistics.median(_seconds(lambda: store.append(item)) for _ in range(items))
            get = statistics.median(_seconds(lambda: store.get(len(store) // 2)) for _ in range(items))
            held = store.statistics()
            ratio = held.tensor_bytes / (held.memory_bytes + held.disk_bytes)
        yield Figure(
            f"store, items of 1 MiB in {name}: append (times a clone that is kept) and get (times one that is not)",
            f"{append / kept:.1f} and {get / clone:.1f}; {ratio:.2f} bytes kept in one",
        )


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def _percentiles(values: Sequence[float]) -> str:
    return " / ".join(f"{_percentile(values, share) / 1e3:.1f}" for share in (0.5, 0.99, 0.999))


def _hits(found: PoolStatistics) -> str:
    return f"{found.hits / found.takes:.1%} hits"


if __name__ == "__main__":
    gc.collect()
    for figure in figures(quick=False):
        print(figure)
