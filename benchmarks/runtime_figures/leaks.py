"""Leaks: 24 planted programs, what peers say of the same, error rates over simulated runs, and what watching costs.

Peers that are not installed (objgraph) are left out of the table.
"""

import contextlib
import gc
import io
import math
import random
import statistics
import sys
import time
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import nn

from memplan.runtime.leaks.detector import LeakDetector
from memplan.runtime.leaks.records import Growing
from memplan.runtime.leaks.trend import judge
from memplan.runtime.meters import cpu
from memplan.runtime.meters.host import host_reading
from runtime_figures.figure import Figure

sys.path.insert(0, str(Path(__file__).parents[2]))  # The plants are those of the tests.
from tests.runtime.leaks.programs import LEAKS, PROGRAMS, STEPS, Program

Noise = Callable[[int, random.Random], float]


def figures(*, quick: bool) -> Iterator[Figure]:
    """All of them."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    names = list(PROGRAMS)[:: 8 if quick else 1]
    yield from planted(names)
    yield from peers(names)
    yield from held_out(loops=4 if quick else 100)
    yield from simulated(series=200 if quick else 4000)
    yield from overhead(pairs=40 if quick else 900)


# The planted programs.


def planted(names: list[str]) -> Iterator[Figure]:
    """Each program, and how many are right."""
    right = 0
    for name in names:
        program = PROGRAMS[name]
        detector = watched(program)
        right += bool(detector.leaks) == bool(program.bytes_per_step)
        yield Figure(f"{'leak' if program.bytes_per_step else 'no leak'}: {name}", told(program, detector))
    yield Figure(
        f"planted loops of {STEPS} steps judged right, leak or no leak, at any time",
        f"{right} of {len(names)}", f"{len(names)}", right == len(names),
    )  # fmt: skip


def watched(program: Program) -> LeakDetector:
    """A run with the detector."""
    gc.collect()
    with LeakDetector("cpu") as detector:
        program.loop(STEPS, detector.step)
    return detector


def told(program: Program, detector: LeakDetector) -> str:
    """What the detector said, beside the truth."""
    if not detector.leaks:
        outcomes = ", ".join(f"{each.outcome} in step {each.step}" for each in detector.reports)
        return f"no leak; {type(detector.verdict).__name__} at the end{f' ({outcomes})' if outcomes else ''}"
    report = detector.leaks[0]
    chains = [str(site.chain) for site in report.sites if program.chain in str(site.chain)]
    rate = report.growth.rate if report.growth else math.nan
    error = "hidden by noise, seen in the number" if math.isnan(rate) else f"{rate / program.bytes_per_step - 1:+.2%}"
    named = "named" if report.codes == (program.code,) else f"named {report.codes}"
    return (
        f"leak in step {report.step}; bytes a step {error}, sites explain {report.explained:.0f} of "
        f"{program.bytes_per_step:.0f}; {program.code} {named}; "
        f"{f'`{chains[0]}`' if chains else 'chain **not found**'}; census {report.seconds:.2f} s"
    )


# Peers on the same programs.


def peers(names: list[str]) -> Iterator[Figure]:
    """What grows, by other means: from the middle of a run to its end, as their guides have it."""
    methods = {
        "tracemalloc after gc.collect(): traced bytes at the end above those at half (1 KiB is let pass)": Tracemalloc,
        "resident memory at the end above that at half (1 MiB is let pass)": Resident,
        "gc.get_objects: more tensors at the end than at half": Tensors,
    }
    if find_spec("objgraph"):
        methods["objgraph.growth: Tensor or Parameter among the types that grow after half"] = Objgraph
    for what, method in methods.items():
        wrong = []
        for name in names:
            gc.collect()
            peer = method()
            PROGRAMS[name].loop(STEPS, peer)
            if peer.grows() != bool(PROGRAMS[name].bytes_per_step):
                wrong.append(name)
        missed = sum(name in LEAKS for name in wrong)
        yield Figure(
            f"peer, no chains or causes: {what}",
            f"{len(names) - len(wrong)} of {len(names)} ({missed} missed, {len(wrong) - missed} false: "
            f"{', '.join(wrong) or 'none'})",
        )


class Halves:
    """Compares half a run with its end."""

    allowed = 0.0

    def __init__(self) -> None:
        self.steps, self.at_half, self.at_end = 0, 0.0, 0.0

    def __call__(self) -> None:
        """End a step."""
        self.steps += 1
        if self.steps == STEPS // 2:
            self.at_half = self.now()
        if self.steps == STEPS:
            self.at_end = self.now()

    def now(self) -> float:
        """What is compared."""
        raise NotImplementedError

    def grows(self) -> bool:
        """Is it more at the end, by more than is let pass?"""
        return self.at_end - self.at_half > self.allowed


class Tracemalloc(Halves):
    """Python's own allocations."""

    allowed = 1024

    def __init__(self) -> None:
        super().__init__()
        tracemalloc.start()

    def now(self) -> float:
        """Count."""
        gc.collect()
        traced = tracemalloc.get_traced_memory()[0]
        if self.steps == STEPS:
            tracemalloc.stop()
        return traced


class Resident(Halves):
    """What the kernel counts."""

    allowed = 1 << 20

    def now(self) -> float:
        """Count."""
        gc.collect()
        return host_reading().resident


class Tensors(Halves):
    """Tensors that the garbage collector knows."""

    def now(self) -> float:
        """Count."""
        gc.collect()
        return sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects())


class Objgraph(Halves):
    """Types of objects whose number grew."""

    def __init__(self) -> None:
        super().__init__()
        self.peaks: dict[str, int] = {}

    def now(self) -> float:
        """Count."""
        import objgraph

        with contextlib.redirect_stdout(io.StringIO()):
            grown = objgraph.growth(limit=20, peak_stats=self.peaks)
        return self.at_half + sum(
            by for name, _, by in grown if name in {"Tensor", "Parameter"} and self.steps == STEPS
        )


# Loops that nobody looked at: random mixtures of what may happen.


def held_out(*, loops: int) -> Iterator[Figure]:
    """Real loops put together by chance, half of them with a leak of random size, period and kind."""
    false, steps, other = 0, [], 0
    for seed in range(loops):
        gc.collect()
        leaks = seed % 2 == 0
        with LeakDetector("cpu") as detector:
            mixture(random.Random(seed), leaks, detector)
        false += not leaks and bool(detector.leaks)
        if leaks and detector.leaks:
            steps.append(detector.leaks[0].step)
            other += detector.leaks[0].codes != ("ML004",)
    half = loops // 2
    missed = half - len(steps)
    yield Figure(
        f"held out: {half} random real loops of {MIXED} steps without a leak (jumps, spikes, buffers, caches, cycles)",
        f"{false} called leaks ({interval(false, half)})", "0", not false,
    )  # fmt: skip
    yield Figure(
        f"held out: {half} such loops with a leak of 256 B to 64 KiB every 1 to 8 steps",
        f"{missed} missed ({interval(missed, half)}); found in step {statistics.median(steps or [0]):.0f} (median) to "
        f"{max(steps or [0])}; {other} with another cause than the right one",
        "0 missed", not missed,
    )  # fmt: skip


MIXED = 2000
"""Steps of a random loop; one that leaks ends once that is found."""


def mixture(chance: random.Random, leaks: bool, detector: LeakDetector) -> None:
    """Run one."""
    width, period = chance.choice([64, 512, 4096, 16384]), chance.choice([1, 1, 2, 3, 8])
    noise, spike = chance.choice([0, 1, 10, 100]) * 1000, chance.choice([5, 10, 25, 40])
    jumps = [chance.randrange(MIXED) for _ in range(chance.randrange(4))]
    buffer: deque[torch.Tensor] = deque(maxlen=chance.choice([1, 10, 100, 300]))
    keys, cache = chance.randrange(1, 80), {}
    kept, grown, held, cyclic = [], [], None, chance.random() < 0.5
    for step in range(MIXED):
        last = torch.zeros(1 + chance.randrange(noise + 1))
        if step % spike == 0:
            held = [torch.zeros(1000) for _ in range(chance.randrange(20))] if held is None else None
        if step in jumps:
            grown.append(torch.zeros(chance.randrange(1, 100_000)))
        buffer.append(torch.zeros(100))
        cache.setdefault(step % keys, torch.zeros(50))
        if cyclic:
            ring = [torch.zeros(200)]
            ring.append(ring)
        if leaks and step % period == 0:
            kept.append(torch.zeros(width))
        detector.step()
        if detector.leaks:
            return
    del last


# Simulated series: rates of error.


def simulated(*, series: int) -> Iterator[Figure]:
    """Series of bytes, judged as the detector does, at every thirtieth step: any growth seen counts."""
    chance = random.Random(7)
    stated = sum(isinstance(judge(still(chance, 300)), Growing) for _ in range(series))
    yield Figure(
        f"one judgement each of {series} series without growth in the last third (noise of four kinds, 0 to 3 jumps or "
        "a filling before it)",
        f"{stated} called growing ({interval(stated, series)})", "≤ 0.1 % as stated", stated <= bound(series),
    )  # fmt: skip
    runs = series // 10
    alarmed = sum(any_growth(still(chance, 1500, longest=60), 30) for _ in range(runs))
    yield Figure(
        f"any of 48 judgements in each of {runs} runs of 1,500 steps of that kind, fillings of up to 60 steps",
        f"{alarmed} with an alarm ({interval(alarmed, runs)}), before chains and ages are asked",
    )
    walks = sum(isinstance(judge(walk(chance, 300)), Growing) for _ in range(runs))
    yield Figure(
        f"outside of what is promised: {runs} random walks of 300 steps", f"{walks} growing ({interval(walks, runs)})"
    )
    for height in (1, 16, 64, 256, 1024):
        steps = [needed(chance, height) for _ in range(max(10, series // 100))]
        yield Figure(
            f"steps until a leak of 1 a step is seen under uniform noise of 0 to {height}: median, 95th percentile",
            f"{statistics.median(steps):.0f}, {sorted(steps)[math.ceil(0.95 * len(steps)) - 1]}",
        )


def still(chance: random.Random, steps: int, longest: int | None = None) -> list[float]:
    """Noise, with jumps or a filling that ends before the last third."""
    kind, height = chance.randrange(4), 10 ** chance.uniform(0, 6)
    level = 0.0
    jumps = {chance.randrange(steps): 10 ** chance.uniform(0, 7) for _ in range(chance.randrange(4))}
    ends, rate = chance.randrange(longest or 2 * steps // 3), chance.choice([0, 10 ** chance.uniform(0, 5)])
    period = chance.randrange(2, 40)
    found = []
    for step in range(steps):
        level += jumps.get(step, 0) if step < 2 * steps // 3 else 0
        noise = (
            chance.random(), abs(chance.gauss(0, 1)), float(chance.random() < 0.1), (step % period) / period
        )[kind]  # fmt: skip
        found.append(level + rate * min(step, ends) + height * noise)
    return found


def any_growth(series: list[float], every: int) -> bool:
    """Does any judgement on the way say so?"""
    return any(isinstance(judge(series[:steps]), Growing) for steps in range(90, len(series) + 1, every))


def walk(chance: random.Random, steps: int) -> list[float]:
    """A sum of steps up and down."""
    found = [0.0]
    while len(found) < steps:
        found.append(found[-1] + chance.gauss(0, 1))
    return found


def needed(chance: random.Random, height: float) -> int:
    """Steps until a leak of 1 a step is seen."""
    series: list[float] = []
    while True:
        series += [len(series) + at + height * chance.random() for at in range(30)]
        if isinstance(judge(series), Growing):
            return len(series)


def interval(found: int, tries: int) -> str:
    """Wilson's 95 % interval."""
    z, share = 1.96, found / tries
    middle = (share + z * z / (2 * tries)) / (1 + z * z / tries)
    half = z / (1 + z * z / tries) * math.sqrt(share * (1 - share) / tries + z * z / (4 * tries * tries))
    return f"95 %: {max(0, middle - half):.2%} to {middle + half:.2%}"


def bound(tries: int) -> float:
    """What a rate of 0.1 % exceeds once in a thousand times, about."""
    return 0.001 * tries + 3.1 * math.sqrt(0.001 * tries) + 1


# What watching costs.


def overhead(*, pairs: int) -> Iterator[Figure]:
    """Steps with and without, interleaved; CPU time. The counting allocator runs in both, and is measured apart."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    optimizer = torch.optim.AdamW(model.parameters())
    inputs = torch.randn(4, 32, 256)

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    def watched_step() -> None:
        step()
        detector.step()

    with LeakDetector("cpu") as detector:
        for _ in range(5):
            watched_step()
        ratio, control = paired(step, watched_step, pairs), paired(step, step, pairs // 3)
        alone = statistics.median(cpu_seconds(detector.step) for _ in range(300))
    yield Figure(
        f"step of a 4-layer transformer (3.2 M parameters) with detector.step(), judgements included, {pairs} pairs",
        f"{ratio:.4f} times the plain step (which is {control:.4f} times itself)", "< 1.01", ratio < 1.01,
    )  # fmt: skip
    yield Figure("detector.step() between judgements, median", f"{alone * 1e6:.0f} µs")
    counted = counting(step, pairs // 3)
    yield Figure("the same step with the counting allocator (detector on the CPU needs it)", f"{counted:.4f} times")
    with LeakDetector("cpu") as detector:
        plain = statistics.median(cpu_seconds(step) for _ in range(10))
        detector.investigate(10)
        sampled = statistics.median(cpu_seconds(watched_step) for _ in range(9))
        for _ in range(40):
            watched_step()
        [report] = detector.reports
    yield Figure(
        "a sampled step (births are written down; 5 to 64 in an investigation)", f"{sampled / plain:.2f} times"
    )
    yield Figure(
        f"a census with {len(gc.get_objects()):,} objects in the process",
        f"{report.seconds:.2f} s, once in an investigation",
    )


def counting(step: Callable[[], None], pairs: int) -> float:
    """Ratio of a step with counting to one without."""

    def counted() -> None:
        with cpu.counting():
            step()

    return paired(step, counted, pairs)


def paired(one: Callable[[], None], other: Callable[[], None], pairs: int) -> float:
    """Median ratio of CPU times, taken in turn."""
    ratios = []
    for at in range(pairs):
        times = [0.0, 0.0]
        for index in (0, 1) if at % 2 else (1, 0):
            times[index] = cpu_seconds((one, other)[index])
        ratios.append(times[1] / times[0])
    return statistics.median(ratios)


def cpu_seconds(body: Callable[[], object]) -> float:
    """CPU time of this thread."""
    began = time.thread_time()
    body()
    return time.thread_time() - began
