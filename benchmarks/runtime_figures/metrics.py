"""What a scrape and the live page cost, and how large their answers are.

The cost to training is of the processor, all threads of the process together: a training loop runs in blocks of a
second, alternately with one scrape from another process in it and without; the figure is the median of neighbours'
ratios.
"""

import json
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator

import torch
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from torch import nn

from memplan.runtime.meters import cpu
from memplan.runtime.meters.read import read
from memplan.runtime.meters.records import DeviceReading, Reading
from memplan.runtime.metrics.exporter import start
from memplan.runtime.monitor.monitor import MemoryMonitor
from memplan.runtime.monitor.records import Check
from memplan.runtime.web.recorder import MOST_POINTS, SeriesRecorder
from runtime_figures.figure import Figure

PAIRS = 25
"""Blocks of each kind."""
GIB = 1 << 30
_SCRAPER = (
    "import sys, urllib.request\nfor line in sys.stdin: urllib.request.urlopen(line.strip()).read(); print(flush=True)"
)


def figures(*, quick: bool) -> Iterator[Figure]:
    """All figures of the exporter and the live page."""
    torch.set_num_threads(1)
    times = 10 if quick else 200
    for cards in (1, 8):
        checks = list(run_of(cards, 3))
        yield from scrapes(checks[-1], cards, times)
    yield cost(2 if quick else PAIRS)
    for cards in (1, 8):
        yield from page(cards, 100 if quick else MOST_POINTS, times)
    yield watching(0.2 if quick else 5)


def run_of(cards: int, count: int) -> Iterator[Check]:
    """Checks of a run on so many cards, none of which is here: readings are made up, judgements are real."""
    host = read().host

    def reading() -> Reading:
        made = next(numbers)
        devices = (
            DeviceReading(
                device=f"cuda:{index}",
                name="NVIDIA H100 80GB HBM3",
                uuid=f"GPU-{index:08d}-0000-0000-0000-000000000000",
                allocated=(30 + made % 17) * GIB + index,
                requested=(29 + made % 17) * GIB,
                reserved=(48 + made % 5) * GIB,
                inactive=(1 + made % 3) * GIB,
                peak_allocated=47 * GIB,
                peak_reserved=53 * GIB,
                used=(50 + made % 5) * GIB,
                total=80 * GIB,
            )
            for index in range(cards)
        )
        return Reading(seconds=1.8e9 + made, devices=tuple(devices), host=host)

    numbers = iter(range(count))
    monitor = MemoryMonitor(reader=reading)
    return (monitor.check(number) for number in range(count))


def scrapes(check: Check, cards: int, times: int) -> Iterator[Figure]:
    """Time and size of an answer; beside as many gauges that somebody set before."""
    exporter = start(lambda: check, port=0, job="bench")
    address = f"http://{exporter.address}/metrics"
    text = urllib.request.urlopen(address).read()
    milliseconds = median_ms(lambda: urllib.request.urlopen(address).read(), times)
    made = median_ms(lambda: generate_latest(exporter.registry), times)
    exporter.close()
    series = sum(not line.startswith(b"#") for line in text.splitlines())
    registry = CollectorRegistry()
    gauges = Gauge("bench_bytes", "as many", ["gpu", "gpu_uuid", "rank", "job", "which"], registry=registry)
    for number in range(series):
        gauges.labels("cuda:0", "GPU-0", "", "bench", str(number)).set(number)
    peer = median_ms(lambda: generate_latest(registry), times)
    what = f"scrape with {cards} GPU{'s' * (cards > 1)}: {series} series"
    yield Figure(
        f"{what}, over HTTP", f"{milliseconds:.2f} ms, {len(text) / 1024:.1f} KiB", "< 10 ms", milliseconds < 10
    )
    yield Figure(f"{what}, made / as many plain gauges of prometheus_client", f"{made / peer:.2f}")


def cost(pairs: int) -> Figure:
    """Of one scrape a second to a training loop, allocation times included."""
    network = nn.Sequential(*[nn.Linear(256, 256) for _ in range(3)])
    optimizer = torch.optim.AdamW(network.parameters())

    def block() -> float:
        began, processor, steps = time.monotonic(), time.process_time(), 0
        while time.monotonic() - began < 1:
            optimizer.zero_grad()
            network(torch.randn(64, 256)).square().mean().backward()
            optimizer.step()
            steps += 1
        return (time.process_time() - processor) / steps

    with cpu.counting(), MemoryMonitor() as monitor:
        monitor.check(0)
        exporter = start(monitor.latest, port=0, job="bench")
        with subprocess.Popen(
            [sys.executable, "-c", _SCRAPER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as scraper:
            assert scraper.stdin
            assert scraper.stdout
            block()
            ratios = []
            for number in range(pairs):
                found = {}
                for scraped in (True, False) if number % 2 else (False, True):
                    if scraped:
                        scraper.stdin.write(f"http://{exporter.address}/metrics\n")
                        scraper.stdin.flush()
                    found[scraped] = block()
                    if scraped:
                        scraper.stdout.readline()
                ratios.append(found[True] / found[False])
            scraper.stdin.close()
        exporter.close()
    ratio = statistics.median(ratios)
    return Figure(
        "tiny MLP (3 x 256, batch 64), step with a scrape a second / without", f"{ratio:.4f}", "< 1.01", ratio < 1.01
    )


def page(cards: int, points: int, times: int) -> Iterator[Figure]:
    """The live page's data, whole and what is new."""
    last: list[Check] = []
    recorder = SeriesRecorder(lambda: last[-1] if last else None, job="bench", plan=None)
    for check in run_of(cards, points):
        last.append(check)
        recorder.look()
    at = recorder.document()["at"]
    what = f"data of the live page, {cards} GPU{'s' * (cards > 1)}, {points} points"
    for kind, since, goal in (("all", "", 200), ("what is new", at, 5)):
        text = json.dumps(recorder.document(since))
        milliseconds = median_ms(lambda since=since: json.dumps(recorder.document(since)), max(3, times // 10))
        yield Figure(
            f"{what}: {kind}", f"{milliseconds:.2f} ms, {len(text) / 1024:.1f} KiB", f"< {goal} ms", milliseconds < goal
        )


def watching(seconds: float) -> Figure:
    """What the live page's thread takes while nothing happens."""
    checks = list(run_of(1, 1))
    recorder = SeriesRecorder(lambda: checks[-1], job="bench", plan=None)
    recorder.start()
    began = time.process_time()
    time.sleep(seconds)
    share = (time.process_time() - began) / seconds
    recorder.close()
    return Figure(
        "the live page's thread while no check comes, share of a processor", f"{share:.5f}", "< 0.005", share < 0.005
    )


def median_ms(call: Callable[[], object], times: int) -> float:
    """Median of wall times in milliseconds."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return statistics.median(found) * 1e3
