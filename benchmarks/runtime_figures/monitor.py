"""The monitor: what a check takes, and what a training loop pays for being watched, from within and by the command."""

import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from memplan.runtime.meters.records import DeviceReading, Reading
from memplan.runtime.monitor import wire
from memplan.runtime.monitor.inside import __file__ as inside
from memplan.runtime.monitor.judge import judge
from memplan.runtime.monitor.monitor import MemoryMonitor
from runtime_figures.figure import Figure

_LOOP = """
import json, statistics, sys, time
import torch
from torch import nn
torch.set_num_threads(1)
model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(4)])
optimizer = torch.optim.AdamW(model.parameters())
batch, wall, cpu = torch.randn(64, 512), [], []
for _ in range(int(sys.argv[1])):
    began, spent = time.perf_counter(), time.process_time()
    model(batch).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    wall.append(time.perf_counter() - began)
    cpu.append(time.process_time() - spent)
half = len(cpu) // 2
print(json.dumps([statistics.median(wall[half:]), statistics.mean(cpu[half:])]))
"""
"""A training loop that times the second half of its steps: median wall time, mean CPU time of all its threads.

The monitor's reader imports psutil while the first ones run.
"""


def figures(*, quick: bool) -> Iterator[Figure]:
    """All of them."""
    torch.set_num_threads(1)
    yield from latency(checks=300 if quick else 5000)
    yield from eight_cards(checks=200 if quick else 2000)
    yield from within(pairs=2 if quick else 60)
    yield from watched(runs=1 if quick else 9, steps=20 if quick else 400)
    yield from starting(runs=2 if quick else 21)


def latency(*, checks: int) -> Iterator[Figure]:
    """Each check of a process with CPU tensors: read, judge against a full window, write a line of the log."""
    with tempfile.TemporaryDirectory() as folder:
        for name, log in (("", None), (", with a log", Path(folder) / "log.jsonl")):
            with MemoryMonitor(log=log) as monitor:
                times = timed(lambda step, monitor=monitor: monitor.check(step), checks)
            settled = slice(300, None) if checks > 300 else slice(None)
            p50, p99 = percentiles([wall for wall, _ in times[settled]])
            spent = percentiles([cpu for _, cpu in times[settled]])[1]
            yield Figure(
                f"check(){name}: CPU tensors, {checks:,} checks, window full",
                f"p50 {p50 * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms (CPU time: p99 {spent * 1e3:.2f} ms)",
                "p99 ≤ 1 ms",
                p99 <= 1e-3,
            )


def eight_cards(*, checks: int) -> Iterator[Figure]:
    """The judgement alone of eight cards whose readings are made up: what the command's own process does."""
    cards = tuple(replace(CARD, device=f"cuda:{index}", uuid=str(index)) for index in range(8))
    reading = MemoryMonitor().check().reading
    history = deque(maxlen=256)

    def one(step: int) -> None:
        now = Reading(seconds=float(step), devices=cards, host=reading.host)
        history.append(judge(now, history, step=step))

    times = timed(one, checks)[min(300, checks // 2) :]
    p50, p99 = (percentiles([cpu for _, cpu in times])[index] for index in (0, 1))
    yield Figure(
        "judge() of 8 GPUs, made-up readings (in memplan's process), CPU time",
        f"p50 {p50 * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms",
    )


CARD = DeviceReading(
    device="cuda:0", name="Card", uuid="", allocated=10 << 30, requested=10 << 30, reserved=12 << 30, inactive=1 << 30,
    peak_allocated=11 << 30, peak_reserved=12 << 30, used=13 << 30, total=80 << 30,
)  # fmt: skip


def within(*, pairs: int) -> Iterator[Figure]:
    """A training step with a check after it, and beside a thread that checks, over the plain step."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.1, batch_first=True)
    model = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(8, 32, 256)
    monitor = MemoryMonitor()

    def plain() -> None:
        model(batch).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    def checked() -> None:
        plain()
        monitor.check()

    ratio, control = paired(plain, checked, pairs), paired(plain, plain, pairs)
    what = "step of a 6-layer transformer (4.7 M parameters, 256 tokens), CPU time"
    yield Figure(
        f"check() after each {what}, {pairs} pairs",
        f"{ratio:.4f} times the plain step (which is {control:.4f} times itself)",
        "< 1.02",
        ratio < 1.02,
    )

    def ten() -> None:
        for _ in range(10):
            plain()

    def ten_beside_a_thread() -> None:
        with MemoryMonitor().every(0.1):
            ten()

    ratio = paired(ten, ten_beside_a_thread, max(1, pairs // 6))
    yield Figure(
        "a thread that checks every 0.1 s, beside ten such steps", f"{ratio:.4f} times ten plain ones", "< 1.02",
        ratio < 1.02,
    )  # fmt: skip


def watched(*, runs: int, steps: int) -> Iterator[Figure]:
    """A loop run plainly, and by ``memplan monitor`` with its reader inside; it times its own steps."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "loop.py"
        script.write_text(_LOOP, "utf-8")
        plain = [sys.executable, str(script), str(steps)]
        monitored = [sys.executable, "-m", "memplan", "monitor", "-q", "--interval", "1s", "--", *plain]
        found = [(own_times(plain), own_times(monitored)) for _ in range(runs)]
    wall = statistics.median(other[0] / one[0] for one, other in found)
    cpu = statistics.median(other[1] / one[1] for one, other in found)
    yield Figure(
        f"step under `memplan monitor` (1 s, from within), CPU time of the command, {runs} pairs of {steps} steps",
        f"{cpu:.3f} times the plain step; median wall time {wall:.3f}",
        "< 1.02",
        cpu < 1.02,
    )


def starting(*, runs: int) -> Iterator[Figure]:
    """What starts before the command does its work."""
    nothing = [sys.executable, "-c", "pass"]
    hooked = {**os.environ, "PYTHONPATH": str(Path(inside).parent), wire.ADDRESS: "/nonexistent"}
    pairs = [(wall_time(nothing), wall_time(nothing, hooked)) for _ in range(runs)]
    extra = statistics.median(other - one for one, other in pairs)
    yield Figure("start of a Python process with the hook, over one without", f"{extra * 1e3:+.1f} ms, {runs} pairs")
    command = [sys.executable, "-m", "memplan", "monitor", "-q", "--", *nothing]
    extra = statistics.median(wall_time(command) - wall_time(nothing) for _ in range(runs))
    yield Figure("`memplan monitor -- python -c pass` over the command alone", f"{extra * 1e3:.0f} ms, {runs} pairs")


def own_times(command: list[str]) -> tuple[float, float]:
    """What the loop says of its steps: median wall time, mean CPU time."""
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    wall, cpu = json.loads(done.stdout)
    return wall, cpu


def wall_time(command: list[str], environment: dict[str, str] | None = None) -> float:
    """Seconds from start to end."""
    began = time.perf_counter()
    subprocess.run(command, check=True, env=environment, capture_output=True)
    return time.perf_counter() - began


def timed(call: Callable[[int], object], count: int) -> list[tuple[float, float]]:
    """Seconds of each call: wall time, and CPU time of this thread."""
    gc.collect()
    times = []
    for number in range(count):
        began, spent = time.perf_counter(), time.thread_time()
        call(number)
        times.append((time.perf_counter() - began, time.thread_time() - spent))
    return times


def percentiles(times: list[float]) -> tuple[float, float]:
    """The median and the 99th."""
    cut = statistics.quantiles(times, n=100)
    return cut[49], cut[98]


def paired(plain: Callable[[], object], other: Callable[[], object], pairs: int) -> float:
    """Median of ratios of CPU time, one right after the other, each first in turn."""
    ratios = []
    for pair in range(pairs + 2):
        order = (plain, other) if pair % 2 else (other, plain)
        spent = {}
        for index, call in enumerate(order):
            began = time.process_time()
            call()
            spent[index] = time.process_time() - began
        one, two = (spent[0], spent[1]) if pair % 2 else (spent[1], spent[0])
        if pair >= 2:  # The first make the optimizer's state.
            ratios.append(two / one)
    return statistics.median(ratios)
