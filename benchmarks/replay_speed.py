"""How fast the allocator replay is: events per second on real histories and on a synthetic stream.

    python benchmarks/replay_speed.py [--events 1000000] [--repeat 3]

Real histories are CUDA snapshots under ``$MEMPLAN_DATA/snapshots`` (default: ``../shared/data`` beside the checkout);
without them only the synthetic rows are printed. The best of ``--repeat`` runs counts, on one core.
"""

import argparse
import os
import platform
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from memplan.replay.cpu import NoCaching
from memplan.replay.policy import AllocatorPolicy, PinnedPolicy
from memplan.replay.records import ALL_STREAMS, Request
from memplan.replay.replay import replay
from memplan.snapshot.history import replay_history
from memplan.snapshot.read import load_snapshot
from memplan.snapshot.records import DeviceSnapshot

DATA = Path(os.environ.get("MEMPLAN_DATA", Path(__file__).parents[2] / "shared" / "data")) / "snapshots"


def synthetic(events: int, *, seed: int = 0) -> list[Request]:
    """Allocations of a training step's sizes, about 1,500 alive at once, freed mostly youngest first."""
    chance = random.Random(seed)
    sizes = [chance.choice([4, 64, 1024, 4096, 16384]) * 1024 * chance.randint(1, 12) for _ in range(60)]
    stream: list[Request] = []
    alive: list[int] = []
    for key in range(events):
        if chance.random() * 3000 < len(alive):
            index = len(alive) - 1 - min(int(chance.expovariate(1 / 40)), len(alive) - 1)
            stream.append(Request("free", alive.pop(index), 0, 0))
        else:
            stream.append(Request("alloc", key, chance.choice(sizes), 0))
            alive.append(key)
    return stream


def shared(stream: Sequence[Request], *, every: int = 4, wait: int = 500) -> list[Request]:
    """The same with two more streams that use each ``every``-th block, and are waited for after ``wait`` requests."""
    found: list[Request] = []
    for index, request in enumerate(stream):
        found.append(request)
        if request.action == "alloc" and request.key % every == 0:
            found.append(Request("record_stream", request.key, 0, 1 + request.key // every % 2))
        if index % wait == 0:
            found.append(Request("synchronize", 0, 0, ALL_STREAMS))
    return found


def captured(stream: Sequence[Request]) -> list[Request]:
    """The same inside a CUDA graph's capture."""
    return [Request("pool_begin", 1, 0, 0), *stream, Request("pool_end", 1, 0, 0)]


def requests_of(device: DeviceSnapshot) -> list[Request]:
    """A history's own allocations and frees, as a stream for an empty allocator."""
    stream: list[Request] = []
    keys: dict[int, int] = {}
    for event in device.events:
        if event.action == "alloc":
            keys[event.address] = len(stream)
            stream.append(Request("alloc", len(stream), event.nbytes, event.stream))
        elif event.action == "free_completed" and event.address in keys:
            stream.append(Request("free", keys.pop(event.address), 0, 0))
    return stream


def best_seconds(work: Callable[[], object], repeat: int) -> float:
    """Least wall time of several runs."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def streams(events: int) -> Iterator[tuple[str, list[Request]]]:
    """Name and stream of every row."""
    for path in sorted(DATA.glob("*.pickle")):
        for device in load_snapshot(path).devices:
            if device.events:
                yield path.stem, requests_of(device)
    stream = synthetic(events)
    yield "synthetic", stream
    yield "synthetic, blocks shared by 3 streams", shared(stream)
    yield "synthetic, in a CUDA graph's capture", captured(stream)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    policies = {
        "native": AllocatorPolicy(),
        "expandable": AllocatorPolicy(expandable_segments=True),
        "pinned": PinnedPolicy(),
        "no caching": NoCaching(),
    }
    print(f"Python {sys.version.split()[0]}, {platform.machine()}, {_processor()}, {os.cpu_count()} cores")
    print(f"| {'stream':50} | {'events':>9} | " + " | ".join(f"{name + ' /s':>13}" for name in policies) + " |")
    print("|---|---|" + "---|" * len(policies))
    for name, stream in streams(options.events):
        rates = []
        for policy in policies.values():
            seconds = best_seconds(lambda stream=stream, policy=policy: replay(stream, policy=policy), options.repeat)
            rates.append(f"{len(stream) / seconds:>13,.0f}")
        print(f"| {name:50} | {len(stream):>9,} | " + " | ".join(rates) + " |")
    _histories(options.repeat)


def _histories(repeat: int) -> None:
    print()
    print(f"| {'history, address by address':50} | {'addresses equal':>15} | {'segment events':>14} | {'/s':>9} |")
    print("|---|---|---|---|")
    total = [0, 0, 0, 0]
    for path in sorted(DATA.glob("*.pickle")):
        for device in load_snapshot(path).devices:
            if device.events:
                seconds = best_seconds(lambda device=device: replay_history(device), repeat)
                done = replay_history(device)
                counts = (
                    done.allocations_matched,
                    done.allocations,
                    done.segment_events_matched,
                    done.segment_events,
                )
                total = [before + count for before, count in zip(total, counts, strict=True)]
                print(_history_row(path.stem, counts, f"{len(device.events) / seconds:,.0f}"))
    print(_history_row("all", total, ""))


def _history_row(name: str, counts: Sequence[int], rate: str) -> str:
    matched, addresses, segments_matched, segments = counts
    equal, same = f"{matched:,}/{addresses:,}", f"{segments_matched:,}/{segments:,}"
    return f"| {name:50} | {equal:>15} | {same:>14} | {rate:>9} |"


def _processor() -> str:
    """The processor's name where Linux tells it."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


if __name__ == "__main__":
    main()
