"""Batches that adapt, pools, pinned memory and NUMA on a card, against torch's counters and a clock."""

import functools
import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import nn

import memplan
from card.bench import GPU, TARGETS, Bench, Fact, Job, equal, figure, holds, near, spec_of
from memplan.findings.utilization import THRESHOLDS
from memplan.hardware.catalog import load_profile
from memplan.runtime.adaptive.pressure import ReliefPolicy
from memplan.runtime.adaptive.relief import PressureRelief
from memplan.runtime.numa.pinned import pinned_empty
from memplan.runtime.pools.records import PoolFullError
from memplan.units import format_bytes

MIB = 2**20
clear_workspaces: Callable[[], None] = getattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None)  # noqa: SLF001
SHARE = 0.1
"""Of the card's memory, what this process may reserve while it looks for batches."""
WIDEST = {"llama": {"seq_len": 512, "precision": "bf16"}, "mlp": {}}
"""Targets whose largest batch is looked for."""


def batches(bench: Bench) -> Iterator[Fact]:
    """`find_batch` under a limit, against `memplan batch` for a card of that size; steps that run out and survive."""
    if bench.cuda:
        torch.cuda.set_per_process_memory_fraction(SHARE)
        total = torch.cuda.get_device_properties(0).total_memory
    else:
        total = 85 * 10**9
    profile = load_profile(GPU)
    # `memplan batch` leaves room; so much more is there that the room begins where the limit is.
    limit = int((SHARE * total + profile.context_bytes) / THRESHOLDS["aggressive"].target)
    folder = bench.own / "profiles"
    folder.mkdir(exist_ok=True)
    sizes = f"total_bytes = {limit}\nusable_bytes = {limit}\n"
    source = '[sources]\ntotal_bytes = "a share of the card"\nusable_bytes = "a share of the card"\n'
    (folder / "part.toml").write_text(f'title = "a part of a card"\nbase = "{GPU}"\n{sizes}{source}', "utf-8")
    for target, options in WIDEST.items():
        yield from _largest(bench, target, options, folder)
    yield from _micro(bench)
    yield from _relief(bench)


def _largest(bench: Bench, target: str, options: dict[str, object], folder: Path) -> Iterator[Fact]:
    typed = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    job = [TARGETS / f"{target}.py", "--gpu", "part", "--profile-dir", folder, "--utilization", "aggressive", *typed]
    answer = (
        bench.answer("batch", *job)
        if bench.cuda
        else {"results": [{"variable": "batch_size", "value": 3}], "command": "batch"}
    )
    bench.keep(f"batch-{target}.json", answer)
    [result] = answer["results"]
    yield figure(f"{target}: memplan batch", result["value"])

    retries: dict[int, int] = {}

    def steps(size: int) -> None:
        before = bench.stats().get("num_alloc_retries", 0)
        run = Job(spec_of(target, batch_size=size, **options), bench.device)
        for _ in range(2):
            run.step()
        bench.wait()
        retries[size] = bench.stats().get("num_alloc_retries", 0) - before

    if bench.cuda:
        clear_workspaces()
        floor = torch.cuda.memory_allocated()
    most = None if bench.cuda else 5
    found = memplan.find_batch(steps, prediction=bench.folder / f"batch-{target}.json", most=most)
    tries = [(each.size, each.fits) for each in found.tries]
    yield figure(
        f"{target}: find_batch from the prediction", [found.size, str(found.ended), round(found.seconds, 1), tries]
    )
    yield figure(f"{target}: times that sizes that ran had the cache given back", sorted(retries.items()))
    # `memplan batch` looks for what fits without that; what is larger and runs, runs slower.
    quiet = max((size for size, count in retries.items() if not count), default=0)
    yield near(f"{target}: memplan batch against the largest that runs undisturbed", result["value"], quiet, 0.02)
    for each in found.tries:
        if each.error:
            yield figure(f"{target}: {each.size} failed with", each.error[:200])
            break
    if bench.cuda:
        # Products' work spaces stay with the library, whichever step they came with.
        clear_workspaces()
        yield equal(f"{target}: bytes that are left of failed tries", torch.cuda.memory_allocated() - floor, 0)
        yield figure(f"{target}: reserved afterwards", format_bytes(torch.cuda.memory_reserved()))
    began = time.perf_counter()
    blind = memplan.find_batch(steps, start=max(1, found.size // 3), most=most)
    yield equal(f"{target}: find_batch without a prediction", blind.size, found.size if bench.cuda else 5)
    yield figure(f"{target}: its tries, seconds", [len(blind.tries), round(time.perf_counter() - began, 1)])


def _micro(bench: Bench) -> Iterator[Fact]:
    torch.manual_seed(0)
    width = bench.pick(full=4096, tiny=32)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(4)))
    model = model.to(bench.device, torch.float64 if bench.tiny else torch.float32)
    kind = next(model.parameters()).dtype
    rows = bench.pick(full=32_768 * 3, tiny=64)
    batch = torch.randn(rows, width, device=bench.device, dtype=kind)
    # What the step would have left there in the parts that memory allows, by hand.
    parts = 16
    for part in batch.chunk(parts):
        (model(part).square().mean() / parts).backward()
    by_hand = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad(set_to_none=True)
    before = bench.stats()
    step = memplan.AutoMicroBatch(model, lambda part: model(part).square().mean())
    done = step(batch)
    bench.wait()
    yield figure("AutoMicroBatch: micro-batches, retries", [done.samples[:2], len(done.samples), done.retries])
    if bench.cuda:
        stats = torch.cuda.memory_stats()
        gradients = sum(parameter.grad.nbytes for parameter in model.parameters())
        yield holds("AutoMicroBatch: the unsplit batch does not fit", done.retries > 0, done.retries)
        yield equal(
            "AutoMicroBatch: torch counted as many failures", stats["num_ooms"] - before["num_ooms"], done.retries
        )
        left = stats["allocated_bytes.all.current"] - before["allocated_bytes.all.current"] - gradients
        yield holds("AutoMicroBatch: what stays beside gradients is small", left <= 40 * MIB, left)
    differences = [
        float((one.grad - two).abs().max() / two.abs().max())
        for one, two in zip(model.parameters(), by_hand, strict=True)
    ]
    yield holds("AutoMicroBatch: largest relative difference of gradients", max(differences) < 1e-3, max(differences))
    again = step(batch)
    yield equal("AutoMicroBatch: the next call needs no retry", again.retries, 0)


def _relief(bench: Bench) -> Iterator[Fact]:
    if not bench.cuda:
        return
    relief = PressureRelief(ReliefPolicy(use=0.001, cached=0.2), device="cuda:0")
    torch.cuda.empty_cache()
    cached = torch.empty(2**31, dtype=torch.uint8, device="cuda")
    del cached
    reserved = torch.cuda.memory_reserved()
    done = relief.after_step()
    yield holds("PressureRelief: answers", done is not None, str(done))
    if done is not None:
        yield equal("PressureRelief: given_back", done.given_back, reserved - torch.cuda.memory_reserved())
        yield holds("PressureRelief: the large block is back", done.given_back >= 2**31, done.given_back)
    yield equal("PressureRelief: silent in the next step", relief.after_step(), None)


def pools(bench: Bench) -> Iterator[Fact]:
    """Accounts of `TensorPool` on a card, values through `StagingPool` under streams, `BufferStore` of its tensors."""
    device = bench.device
    pool = memplan.TensorPool(device=device, limit="1GiB")
    before = torch.cuda.memory_allocated() if bench.cuda else 0
    leases = [pool.take((size, 1000), torch.float32) for size in (1, 100, 1000, 10_000)]
    held = pool.statistics().held_bytes
    if bench.cuda:
        yield near("TensorPool: held against memory_allocated", held, torch.cuda.memory_allocated() - before, 0.001)
    yield equal("TensorPool: tensors are there", {lease.tensor.device.type for lease in leases}, {device})
    try:
        pool.take((300, MIB))
        yield holds("TensorPool: refuses beyond its limit", condition=False)
    except PoolFullError as error:
        yield holds("TensorPool: refuses beyond its limit", condition=True, ours=error.what)
    for lease in leases:
        lease.give_back()
    del leases, lease
    statistics = pool.statistics()
    yield equal("TensorPool: in use in the end", statistics.in_use_bytes, 0)
    if bench.cuda:
        yield equal(
            "TensorPool: keeps nothing itself", [statistics.held_bytes, torch.cuda.memory_allocated() - before], [0, 0]
        )
    yield from _staged_values(bench)
    with memplan.BufferStore(limit=4 * MIB) as store:
        originals = [torch.randn(256, 256, device=device) for _ in range(40)]
        for original in originals:
            store.append({"state": original, "half": original.bfloat16()})
        same = all(
            torch.equal(item["state"].to(device), original)
            and torch.equal(item["half"].to(device), original.bfloat16())
            for item, original in zip(store.iterate(prefetch=4), originals, strict=True)
        )
        yield equal("BufferStore: 40 items of the card's tensors, spilled, are equal", same, True)
        places = {item["state"].device.type for item in store.iterate()}
        yield figure("BufferStore: where they come back", sorted(places))


def _staged_values(bench: Bench) -> Iterator[Fact]:
    ring = memplan.StagingPool(buffers=4, buffer_bytes=16 * MIB)
    yield equal("StagingPool: pinned", ring.statistics().is_pinned, bench.cuda)
    wrong = 0
    side = torch.cuda.Stream() if bench.cuda else None
    for turn in range(bench.pick(full=300, tiny=20)):
        tensor = torch.full((4 * MIB - turn,), float(turn), device=bench.device)
        tensor += 1.0  # Queued before the copy.
        staged = ring.offload(tensor)
        del tensor
        # At once somebody else gets the memory, and writes to it.
        other = torch.full((4 * MIB - turn,), -1.0, device=bench.device)
        if side is not None and turn % 2:
            with torch.cuda.stream(side):
                side.wait_stream(torch.cuda.default_stream())
                back = staged.bring_back()
                wrong += int((back != turn + 1.0).sum())
            torch.cuda.current_stream().wait_stream(side)
        else:
            back = staged.bring_back()
            wrong += int((back != turn + 1.0).sum())
        del back, other
    yield equal("StagingPool: wrong values in 300 turns on two streams", wrong, 0)
    statistics = ring.statistics()
    yield figure(
        "StagingPool: out, back, waits, leaks", [statistics.out, statistics.back, statistics.waits, statistics.leaks]
    )


def staging(bench: Bench) -> Iterator[Fact]:
    """Bytes a second through pinned and pageable memory, and what goes on beside a copy."""
    size = bench.pick(full=256 * MIB, tiny=MIB)
    with bench.alone():
        source = torch.randint(0, 255, (size,), dtype=torch.uint8, device=bench.device)
        rates: dict[str, float] = {}

        def rate(name: str, body: Callable[[], object]) -> None:
            body()
            bench.wait()
            taken = []
            for _ in range(5):
                began = time.perf_counter()
                body()
                bench.wait()
                taken.append(time.perf_counter() - began)
            rates[name] = size / statistics.median(taken) / 1e9

        ring = memplan.StagingPool(buffers=2, buffer_bytes=size)
        rate("torch, pageable, out", lambda: source.to("cpu"))
        pageable = torch.empty(size, dtype=torch.uint8)
        rate("torch, pageable and touched, out", lambda: pageable.copy_(source))
        rate("torch, pageable, back", lambda: source.copy_(pageable))
        if bench.cuda:
            pinned = torch.empty(size, dtype=torch.uint8, pin_memory=True)
            rate("torch, pinned, out", lambda: pinned.copy_(source, non_blocking=True))
            rate("torch, pinned, back", lambda: source.copy_(pinned, non_blocking=True))

        def out() -> None:
            ring.offload(source).give_back()

        def there_and_back() -> None:
            ring.offload(source).bring_back()

        rate("StagingPool, out", out)
        rate("StagingPool, out and back", there_and_back)
        own = pinned_empty((size,), dtype=torch.uint8, node=0)
        yield equal("pinned_empty: registered", own.registered, bench.cuda, str(own.reasons))
        yield figure("pinned_empty: bound, share on the node", [own.bound, own.share])
        if bench.cuda:
            yield equal("pinned_empty: torch says it is pinned", own.tensor.is_pinned(), True)
            rate("pinned_empty, out", functools.partial(own.tensor.copy_, source, non_blocking=True))
            rate("pinned_empty, back", functools.partial(source.copy_, own.tensor, non_blocking=True))
            yield equal("pinned_empty: values", bool((own.tensor == source.cpu()).all()), True)
        for name, found in rates.items():
            yield figure(f"{name}: GB/s", round(found, 2))
        if bench.cuda:
            pairs = ("StagingPool, out", "torch, pinned, out"), ("pinned_empty, out", "torch, pinned, out")
            for ours, theirs in pairs:
                yield near(f"{ours} as fast as {theirs}", rates[ours], rates[theirs], 0.1)
            yield holds("pinned is faster than pageable", rates["StagingPool, out"] > rates["torch, pageable, out"])
            link = load_profile(GPU).host_link_bandwidth / 1e9
            yield figure("the profile's host link, GB/s", link, max(rates.values()))
            yield from _beside(bench, ring, source)
        began = time.perf_counter()
        del own
        yield figure("pinned_empty: milliseconds until it is given back", 1000 * (time.perf_counter() - began))
    yield from numa(bench)


def _beside(bench: Bench, ring: "memplan.StagingPool", source: torch.Tensor) -> Iterator[Fact]:
    left = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)

    def compute() -> None:
        for _ in range(12):
            left @ left

    def both() -> None:
        staged = ring.offload(source)
        compute()
        staged.give_back()
        torch.cuda.synchronize()

    compute()
    alone, copy = (
        bench.seconds(compute, 5),
        bench.seconds(lambda: (ring.offload(source).give_back(), torch.cuda.synchronize()), 5),
    )
    together = bench.seconds(both, 5)
    hidden = (alone + copy - together) / min(alone, copy)
    yield figure(
        "milliseconds of matrix products, of a copy, of both", [1000 * each for each in (alone, copy, together)]
    )
    yield holds("StagingPool: share of the shorter that the longer hides", hidden > 0.7, hidden)


def numa(bench: Bench) -> Iterator[Fact]:
    """`memplan numa` against what the driver and the kernel say of the card's node."""
    done = bench.command("numa", "-f", "json")
    yield equal("memplan numa exits", done.returncode, 0, done.stderr[-300:])
    found = json.loads(done.stdout)
    cards = [each for each in found["topology"]["devices"] if each["kind"] == "gpu"]
    nodes = found["topology"]["nodes"]
    kernel = sorted(Path("/sys/devices/system/node").glob("node[0-9]*"))
    yield equal("numa: nodes", len(nodes), max(1, len(kernel)))
    yield figure("numa: state, cards", [found["placement"]["state"], cards, found["notes"]])
    if not bench.cuda:
        return
    words = ["nvidia-smi", "--query-gpu=pci.bus_id,uuid", "--format=csv,noheader"]
    told = subprocess.run(words, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    address, uuid = (each.strip() for each in told.split(","))
    yield equal("numa: one card", len(cards), 1)
    if cards:
        yield equal("numa: its address", cards[0]["address"][-10:].lower(), address[-10:].lower())
        yield equal("numa: its uuid", cards[0]["uuid"].removeprefix("GPU-"), uuid.removeprefix("GPU-"))
        path = Path("/sys/bus/pci/devices") / address[-12:].lower() / "numa_node"
        node = int(path.read_text()) if path.exists() else None
        yield holds("numa: its node", node in (None, -1, cards[0]["node"]), cards[0]["node"], node)
    [rank] = found["placement"]["ranks"]
    yield equal("numa: CPUs of the rank may be used", set(rank["cpus"]) <= os.sched_getaffinity(0), True)
