"""Profiles, monitors, metrics and leaks on a card, against torch's counters, NVML and nvidia-smi."""

import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import nn

import memplan
from card.bench import Bench, Fact, equal, figure, holds, near
from memplan.findings.utilization import BALANCED
from memplan.runtime.leaks.report import document
from memplan.runtime.meters.cuda import keeper as peaks
from memplan.runtime.meters.nvml import connect
from memplan.runtime.monitor.records import Level

MIB = 2**20
ALLOCATED, REQUESTED = "allocated_bytes.all", "requested_bytes.all"


class Training:
    """Steps of a small GPT-like net whose phases are called one by one."""

    def __init__(self, bench: Bench) -> None:
        torch.manual_seed(0)
        width, layers = bench.pick(full=1024, tiny=32), bench.pick(full=8, tiny=2)
        self.device, self.rows = bench.device, bench.pick(full=16, tiny=2)
        self.length, self.width = bench.pick(full=512, tiny=16), width
        self.model = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True, norm_first=True),
            layers,
            enable_nested_tensor=False,
        ).to(bench.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.batch = torch.randn(self.rows, self.length, width, device=bench.device)

    def forward(self) -> None:
        """Of model and loss."""
        self.loss = self.model(self.batch).square().mean()

    def backward(self) -> None:
        """All of it."""
        self.loss.backward()

    def update(self) -> None:
        """Optimizer, gradients away."""
        self.optimizer.step()
        self.optimizer.zero_grad()
        del self.loss

    def phases(self) -> tuple[tuple[str, Callable[[], None]], ...]:
        """By name."""
        return ("forward", self.forward), ("backward", self.backward), ("update", self.update)

    def step(self) -> None:
        """One."""
        for _, phase in self.phases():
            phase()


def profile(bench: Bench) -> Iterator[Fact]:
    """`memplan.profile`, region by region, against counters that are read apart; and what it costs."""
    with bench.alone():
        training = Training(bench)
        for _ in range(3):
            training.step()
        truth = _phases_by_torch(bench, training)
        for depth in ("counters", "sampled", "full"):
            yield from _profiled(bench, training, depth, truth)
        yield from _costs(bench, training)


def _phases_by_torch(bench: Bench, training: Training) -> dict[str, dict[str, int]]:
    found = {}
    for name, phase in training.phases():
        if not bench.cuda:
            phase()
            found[name] = {}
            continue
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_stats()
        phase()
        after = torch.cuda.memory_stats()
        found[name] = {
            "peak": after[f"{ALLOCATED}.peak"],
            "requested_peak": after[f"{REQUESTED}.peak"],
            "delta": after[f"{ALLOCATED}.current"] - before[f"{ALLOCATED}.current"],
            "total": after[f"{ALLOCATED}.allocated"] - before[f"{ALLOCATED}.allocated"],
            "allocations": after["allocation.all.allocated"] - before["allocation.all.allocated"],
            "frees": after["allocation.all.freed"] - before["allocation.all.freed"],
        }
    return found


def _profiled(bench: Bench, training: Training, depth: str, truth: dict[str, dict[str, int]]) -> Iterator[Fact]:
    before = bench.stats()
    with memplan.profile("training", depth=depth) as run:
        for _ in range(2):
            run.step()
            for name, phase in training.phases():
                with memplan.profile(name):
                    phase()
        bench.wait()
    recording = run.recording
    yield figure(f"{depth}: source, device, notes", [recording.source, recording.device, list(recording.notes)])
    regions = {region.path[-1]: region for region in recording.regions}
    for name, theirs in truth.items():
        region, at = regions[name], f"{depth}: {name}"
        if theirs:
            yield equal(f"{at}: peak_bytes", region.peak_bytes, theirs["peak"])
            yield equal(f"{at}: delta_bytes", region.delta_bytes, 2 * theirs["delta"])
            yield equal(f"{at}: total_bytes", region.total_bytes, 2 * theirs["total"])
            yield equal(f"{at}: allocations", region.allocations, 2 * theirs["allocations"])
    if not before:
        return
    most = max(each["peak"] for each in truth.values())
    yield equal(f"{depth}: peak of the recording", recording.peak_bytes, most)
    yield equal(f"{depth}: peak kept for others", peaks.with_kept(0)[f"{ALLOCATED}.peak"] >= most, True)
    if recording.samples:
        yield equal(f"{depth}: highest sample", max(each.peak_bytes for each in recording.samples), most)
    if recording.events is not None:
        yield from _events(recording, truth, before)
    recording.save(bench.own / f"{depth}.json")
    done = bench.command("report", bench.own / f"{depth}.json", "-f", "text", "-f", f"html={bench.own}/{depth}.html")
    yield equal(f"{depth}: memplan report exits", done.returncode, 0, done.stderr[-300:])


def _events(recording: object, truth: dict[str, dict[str, int]], before: dict[str, int]) -> Iterator[Fact]:
    events = recording.events  # type: ignore[attr-defined]
    allocations = sum(size > 0 for size in events.sizes)
    yield equal("full: events that allocate", allocations, 2 * sum(each["allocations"] for each in truth.values()))
    yield equal("full: events that free", len(events) - allocations, 2 * sum(each["frees"] for each in truth.values()))
    start = recording.start_bytes  # type: ignore[attr-defined]
    highest = max(events.levels(start), default=start)
    # Events are what was asked for, so that their levels are not those of blocks.
    most = max(each["peak"] for each in truth.values())
    yield figure("full: highest level of the events from what was allocated, beside the allocated peak", highest, most)
    highest = max(events.levels(before[f"{REQUESTED}.current"]), default=0)
    theirs = max(each["requested_peak"] for each in truth.values())
    yield equal("full: highest level of the events, requested", highest, theirs)
    yield equal("full: alive in the end", sum(events.sizes), 0)
    yield equal("full: events dropped", events.dropped, 0)
    seconds = recording.seconds  # type: ignore[attr-defined]
    inside = all(0 <= each <= 1e9 * seconds for each in events.nanoseconds)
    yield equal("full: events lie within the recording", inside, True)


def _costs(bench: Bench, training: Training) -> Iterator[Fact]:
    def plain(steps: int) -> float:
        began = time.perf_counter()
        for _ in range(steps):
            training.step()
        bench.wait()
        return (time.perf_counter() - began) / steps

    def under(depth: str, steps: int) -> float:
        with memplan.profile("training", depth=depth):
            began = time.perf_counter()
            for _ in range(steps):
                for name, phase in training.phases():
                    with memplan.profile(name):
                        phase()
            bench.wait()
            return (time.perf_counter() - began) / steps

    steps = bench.pick(full=8, tiny=3)
    plain(3)
    turns: dict[str, list[float]] = {"plain": [], "again": [], "counters": [], "sampled": [], "full": []}
    for _ in range(5):
        for depth, taken in turns.items():
            taken.append(plain(steps) if depth in ("plain", "again") else under(depth, steps))
    base = turns.pop("plain")
    yield figure("milliseconds of a plain step", 1000 * sorted(base)[2])
    for depth, taken in turns.items():
        ratios = sorted(one / other for one, other in zip(taken, base, strict=True))
        yield figure(f"step under '{depth}' over the plain one, median of 5 pairs", ratios[2])


def monitor(bench: Bench) -> Iterator[Fact]:
    """`MemoryMonitor` and its metrics on a card that is filled."""
    with bench.alone():
        training = Training(bench)
        with memplan.MemoryMonitor(log=bench.own / "log.jsonl") as watch:
            for step in range(4):
                training.step()
                check = watch.check(step)
            if not bench.cuda:
                yield figure("level", check.level.word)
                return
            yield from _reading(watch)
            yield from _levels(watch)
            yield from _retries(watch)
            yield from _metrics(watch)
            yield from _fragmented(watch)
            taken = sorted(_timed(lambda: watch.check(9)) for _ in range(100))
            yield figure("milliseconds of a check, median and 99th of 100", [1000 * taken[50], 1000 * taken[98]])


def _timed(body: Callable[[], object]) -> float:
    began = time.perf_counter()
    body()
    return time.perf_counter() - began


def _smi(query: str) -> list[list[str]]:
    words = ["nvidia-smi", f"--query-{query}", "--format=csv,noheader,nounits"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=True)
    return [[cell.strip() for cell in row.split(",")] for row in done.stdout.splitlines()]


def _reading(watch: "memplan.MemoryMonitor") -> Iterator[Fact]:
    torch.cuda.synchronize()
    device, stats = watch.check().reading.devices[0], torch.cuda.memory_stats()
    for name, key in (
        ("allocated", f"{ALLOCATED}.current"),
        ("requested", f"{REQUESTED}.current"),
        ("reserved", "reserved_bytes.all.current"),
        ("inactive", "inactive_split_bytes.all.current"),
        ("peak_allocated", f"{ALLOCATED}.peak"),
        ("peak_reserved", "reserved_bytes.all.peak"),
        ("retries", "num_alloc_retries"),
        ("ooms", "num_ooms"),
    ):
        yield equal(f"reading: {name}", getattr(device, name), stats[key])
    free, total = torch.cuda.mem_get_info()
    yield equal("reading: used", device.used, total - free)
    yield equal("reading: total", device.total, torch.cuda.get_device_properties(0).total_memory)
    [[uuid, used, all_there_is, name]] = _smi("gpu=uuid,memory.used,memory.total,name")
    yield equal("reading: name", device.name, name)
    yield equal("reading: uuid without prefix", device.uuid.removeprefix("GPU-"), uuid.removeprefix("GPU-"))
    yield near("reading: used against nvidia-smi", device.used, MIB * int(used), 0.01)
    nvml, why = connect()
    yield holds("NVML connects", nvml is not None, why)
    if nvml is None:
        return
    [outside] = nvml.readings()
    yield near("NVML: used against nvidia-smi", outside.used, MIB * int(used), 0.01)
    # nvidia-smi's total is with what the driver keeps for itself, CUDA's without.
    yield near("NVML: total against CUDA's", outside.total, device.total, 0.001, f"nvidia-smi: {all_there_is} MiB")
    yield equal("NVML: uuid as the monitor's", outside.uuid.removeprefix("GPU-"), device.uuid.removeprefix("GPU-"))
    yield figure("NVML: used less the reading's, bytes", outside.used - device.used)
    yield figure("NVML: processes against nvidia-smi", sorted(nvml.users(0)), _smi("compute-apps=pid,used_memory"))


def _levels(watch: "memplan.MemoryMonitor") -> Iterator[Fact]:
    begins = (0.0, BALANCED.warn, BALANCED.critical, BALANCED.emergency, 1.0)
    levels = (Level.NORMAL, Level.WARNING, Level.CRITICAL, Level.EMERGENCY)
    for level, low, high in zip(levels, begins, begins[1:], strict=False):
        share = (low + min(high, 0.99)) / 2
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info()
        held = torch.empty(int(share * total) - (total - free), dtype=torch.uint8, device="cuda")
        check = watch.check()
        free, _ = torch.cuda.mem_get_info()
        device = check.devices[0]
        yield equal(f"level with {share:.0%} of the card in use", check.level.word, level.word)
        yield near(f"demand with {share:.0%} of the card in use", device.demand, total - free, 0.005)
        del held
        torch.cuda.empty_cache()
        # A cache alone is no demand, but the peak is: it begins anew.
        peaks.forget(0)
    # Other reasons may raise a level of their own; this one is gone.
    said = [each.code for each in watch.check().recommendations]
    yield holds("MM001 is said no more", "MM001" not in said, said)


def _retries(watch: "memplan.MemoryMonitor") -> Iterator[Fact]:
    before = torch.cuda.memory_stats()["num_alloc_retries"]
    free, _ = torch.cuda.mem_get_info()
    cached = torch.empty(int(0.6 * free), dtype=torch.uint8, device="cuda")
    del cached
    larger = torch.empty(int(0.7 * free), dtype=torch.uint8, device="cuda")
    check = watch.check()
    yield equal("the cache was given back once", check.reading.devices[0].retries - before, 1)
    yield holds("MM006 is said", "MM006" in [each.code for each in check.recommendations])
    del larger
    torch.cuda.empty_cache()
    peaks.forget(0)


def _metrics(watch: "memplan.MemoryMonitor") -> Iterator[Fact]:
    exporter = memplan.export_metrics(watch, port=0, job="card")
    try:
        watch.check(7)
        stats, (free, total) = torch.cuda.memory_stats(), torch.cuda.mem_get_info()
        address = exporter.address if "://" in exporter.address else f"http://{exporter.address}/metrics"
        with urllib.request.urlopen(address, timeout=10) as answer:
            text = answer.read().decode()
    finally:
        exporter.close()
    truth = {
        "memplan_gpu_memory_used_bytes": total - free,
        "memplan_gpu_memory_total_bytes": total,
        "memplan_torch_allocated_bytes": stats[f"{ALLOCATED}.current"],
        "memplan_torch_requested_bytes": stats[f"{REQUESTED}.current"],
        "memplan_torch_reserved_bytes": stats["reserved_bytes.all.current"],
        "memplan_torch_inactive_split_bytes": stats["inactive_split_bytes.all.current"],
        "memplan_torch_peak_allocated_bytes": stats[f"{ALLOCATED}.peak"],
        "memplan_torch_peak_reserved_bytes": stats["reserved_bytes.all.peak"],
    }
    for name, theirs in truth.items():
        found = re.search(rf"^{name}\{{[^}}]*\}} (\S+)$", text, re.MULTILINE)
        yield equal(f"Prometheus: {name}", int(float(found[1])) if found else None, theirs)


def _fragmented(watch: "memplan.MemoryMonitor") -> Iterator[Fact]:
    torch.cuda.empty_cache()
    # Segments of 20 MiB, half of each free beside a live block.
    blocks = [torch.empty(5 * MIB, dtype=torch.uint8, device="cuda") for _ in range(400)]
    kept = [block for place, block in enumerate(blocks) if place % 4 == 0]
    del blocks
    check, stats = watch.check(), torch.cuda.memory_stats()
    share = stats["inactive_split_bytes.all.current"] / stats["reserved_bytes.all.current"]
    yield near("fragmentation", check.devices[0].fragmentation, share, 1e-9, f"{len(kept)} blocks stay")
    yield equal("MM005 is said", "MM005" in [each.code for each in check.recommendations], share >= 0.2)


HOLD = """
import json, sys, time, torch
held = torch.ones(3 << 28, dtype=torch.int32, device="cuda")
torch.cuda.synchronize()
free, total = torch.cuda.mem_get_info()
stats = torch.cuda.memory_stats()
peaks = {name: stats[f"{name}_bytes.all.peak"] for name in ("allocated", "reserved")}
json.dump(peaks | {"used": total - free}, open(sys.argv[1], "w"))
time.sleep(2.5)
"""
FULL = """
import json, sys, torch
path, way = sys.argv[1:]
model = torch.nn.Linear(1024, 1024, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    model(torch.randn(64, 1024, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
if way != "full":
    torch.cuda.set_per_process_memory_fraction(0.05)
kept, asked = [], 1 << 30
def tell():
    stats, (free, total) = torch.cuda.memory_stats(), torch.cuda.mem_get_info()
    found = {"allocated": stats["allocated_bytes.all.current"], "reserved": stats["reserved_bytes.all.current"]}
    json.dump(found | {"free": free, "total": total, "ooms": stats["num_ooms"], "asked": asked}, open(path, "w"))
try:
    while True:
        kept.append(torch.empty(asked, dtype=torch.uint8, device="cuda"))
except torch.OutOfMemoryError:
    tell()
    raise
"""


def command(bench: Bench) -> Iterator[Fact]:
    """`memplan monitor` of other processes: through NVML alone, and with an allocation that fails."""
    if not bench.cuda:
        return
    folder = bench.own
    (folder / "hold.py").write_text(HOLD, "utf-8")
    (folder / "full.py").write_text(FULL, "utf-8")
    with bench.alone():
        for outside in (True, False):
            yield from _held(bench, folder, outside=outside)
        yield from _ran_out(bench, folder, "full", ("MM101",))
    yield from _ran_out(bench, folder, "limited", ("MM107",))


def _held(bench: Bench, folder: Path, *, outside: bool) -> Iterator[Fact]:
    where = "outside" if outside else "within"
    report, truth = folder / f"{where}.json", folder / f"{where}-truth.json"
    options = ["--outside"] if outside else []
    run = [sys.executable, "hold.py", truth]
    [[before]] = _smi("gpu=memory.used")
    done = bench.command("monitor", "--interval", "200ms", *options, "-f", f"json={report}", "--", *run)
    yield equal(f"{where}: memplan monitor exits as the command", done.returncode, 0, done.stderr[-500:])
    ours, theirs = json.loads(report.read_text("utf-8")), json.loads(truth.read_text("utf-8"))
    peaks_found = [each for each in ours["peaks"] if each["device"].startswith("cuda")]
    yield holds(f"{where}: the card is among the peaks", peaks_found, ours["peaks"], note=str(ours["notes"]))
    for peak in peaks_found:
        note = f"{before} MiB before"
        yield near(f"{where}: used", peak.get("used_bytes", peak.get("used")), theirs["used"], 0.01, note)
        if not outside:
            for name in ("allocated", "reserved"):
                yield equal(f"{where}: {name}", peak.get(f"{name}_bytes", peak.get(name)), theirs[name])


def _ran_out(bench: Bench, folder: Path, way: str, codes: tuple[str, ...]) -> Iterator[Fact]:
    report, truth = folder / f"{way}.json", folder / f"{way}-truth.json"
    run = [sys.executable, "full.py", truth, way]
    done = bench.command("monitor", "--interval", "200ms", "--snapshots", folder, "-f", f"json={report}", "--", *run)
    yield equal(f"{way}: exit code", done.returncode, 1, done.stderr[-300:])
    ours, theirs = json.loads(report.read_text("utf-8")), json.loads(truth.read_text("utf-8"))
    found = ours["post_mortem"]
    yield holds(f"{way}: there is a post-mortem", found, ours.get("ending"))
    if not found:
        return
    yield holds(f"{way}: cause", found["code"] in codes, found["code"], codes, found["sentence"])
    yield equal(f"{way}: optimizer steps", ours["steps"], 5)
    snapshot = Path(found["snapshot"]) if found["snapshot"] else None
    yield holds(
        f"{way}: a snapshot was written", snapshot and snapshot.exists(), str(snapshot), note=str(ours["notes"])
    )
    if snapshot is None or not snapshot.exists():
        return
    told = bench.answer("snapshot", snapshot)
    now = told["now"]
    reserved = now.get("reserved_bytes", now.get("reserved"))
    yield equal(f"{way}: reserved in the snapshot", reserved, theirs["reserved"])
    yield figure(f"{way}: memplan snapshot", {key: told[key] for key in ("out_of_memory", "notes", "hints")}, theirs)


def leaks(bench: Bench) -> Iterator[Fact]:
    """`LeakDetector` on a card: a planted leak, none, and a cache that grows."""
    for way in ("leak", "none", "fragmenting"):
        yield from _watched(bench, way)


def _watched(bench: Bench, way: str) -> Iterator[Fact]:
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)).to(bench.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    kept: list[torch.Tensor] = []
    series: list[tuple[int, int]] = []
    steps = 300
    if bench.cuda:
        torch.cuda.empty_cache()
    began = time.perf_counter()
    with memplan.LeakDetector(bench.device) as detector:
        for step in range(steps):
            output = model(torch.randn(64, 256, device=bench.device))
            output.square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            if way == "leak":
                kept.append(output.detach() + 0.0)
            if way == "fragmenting":
                # Each is a little larger than any before, so that no cached segment is large enough.
                torch.empty(
                    (24 * MIB + step * MIB // 2) // (1 if bench.cuda else 64), dtype=torch.uint8, device=bench.device
                )
            del output
            detector.step()
            if bench.cuda:
                series.append((torch.cuda.memory_allocated(), torch.cuda.memory_reserved()))
    yield figure(f"{way}: milliseconds of a step, sampling included", 1000 * (time.perf_counter() - began) / steps)
    yield equal(
        f"{way}: leaks found",
        bool(detector.leaks),
        way == "leak",
        str([document(each) for each in detector.reports])[:1500],
    )
    yield equal(f"{way}: fragmenting", detector.fragmenting, way == "fragmenting" and bench.cuda)
    if series:
        grown = [(series[-1][place] - series[150][place]) / (len(series) - 151) for place in range(2)]
        yield figure(f"{way}: torch's growth a step, allocated and reserved", grown)
        if detector.leaks and detector.leaks[0].growth:
            yield near(f"{way}: rate", detector.leaks[0].growth.rate, grown[0], 0.01)
    if detector.leaks:
        found = detector.leaks[0]
        site = next(each for each in found.sites if each.leaks)
        yield equal(f"{way}: source", found.source, "cuda:0" if bench.cuda else "cpu")
        yield holds(f"{way}: born in this file", site.place and site.place[0].endswith("watching.py"), str(site.place))
        yield holds(f"{way}: the list is named", "kept" in str(site.chain), str(site.chain))


def pytest(bench: Bench) -> Iterator[Fact]:
    """The tests that need a card."""
    root = Path(__file__).parents[3]
    files = ["runtime/checkpoint/test_offload.py", "runtime/pools/test_staging.py", "validate/test_run.py"]
    words = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider", "-o", "minversion=7", "-rA"]
    words += ["--tb=short", *(f"tests/{each}" for each in files)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=root, timeout=110, check=False)
    tail = done.stdout.splitlines()
    for line in tail:
        if line.startswith(("PASSED", "FAILED", "ERROR", "SKIPPED")):
            yield Fact(what=line[:200], memplan=line.split()[0], agrees=line.startswith("PASSED"))
    yield holds("pytest -m gpu", done.returncode == (0 if bench.cuda else 5), done.returncode)
    if done.returncode:
        yield figure("output", "\n".join(tail[-80:])[-6000:] + done.stderr[-1500:])
