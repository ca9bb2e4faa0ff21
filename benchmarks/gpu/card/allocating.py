"""Snapshots of the card's allocator, and its options: memplan's replay of what was recorded, to the byte."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from card.bench import GPU, ROOT, TARGETS, Bench, Fact, Job, equal, figure, holds, near, spec_of

CONFS = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:64",
    "roundup_power2_divisions:4",
    "garbage_collection_threshold:0.6",
    "max_split_size_mb:128,roundup_power2_divisions:8",
)
"""Settings of the allocator that are tried."""
OPTIONS: dict[str, Any] = {"batch_size": 4, "seq_len": 512, "precision": "bf16-mixed"}


def recorded(bench: Bench) -> Iterator[Fact]:
    """Steps of a Llama with lengths that change, recorded from the first byte; run once for each setting."""
    torch.cuda.memory._record_memory_history(max_entries=2_000_000, stacks="python")  # noqa: SLF001
    if "garbage_collection_threshold" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""):
        torch.cuda.set_per_process_memory_fraction(0.1)
    job = Job(spec_of("llama", **OPTIONS), "cuda")
    for _ in range(3):
        job.step()
    wanted = [torch.cuda.memory_stats()]
    # Lengths that change: what a caching allocator loses is lost here.
    generator = torch.Generator().manual_seed(1)
    for _ in range(4):
        length = int(torch.randint(100, 700, (1,), generator=generator))
        tokens = torch.randint(0, 30_000, (4, length), generator=generator).to("cuda")
        with torch.autocast("cuda", torch.bfloat16):
            job.model(input_ids=tokens, labels=tokens).loss.backward()
        job.model.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    wanted.append(torch.cuda.memory_stats())
    torch.cuda.memory._dump_snapshot(str(bench.own / "snapshot.pickle"))  # noqa: SLF001
    keys = [
        f"{what}_bytes.all.{when}"
        for what in ("requested", "allocated", "reserved", "inactive_split")
        for when in ("peak", "current")
    ]
    (bench.own / "stats.json").write_text(
        json.dumps([{key: stats[key] for key in (*keys, "num_alloc_retries", "num_ooms")} for stats in wanted])
    )
    yield figure("recorded", wanted[-1]["allocation.all.allocated"])


def allocator(bench: Bench) -> Iterator[Fact]:
    """The same program under several settings; each history replayed, and the plain one replayed under each setting."""
    if not bench.cuda:
        return
    with ThreadPoolExecutor(len(CONFS)) as pool:
        runs = list(pool.map(lambda pair: _child(bench, *pair), enumerate(CONFS)))
    told = dict(zip(CONFS, runs, strict=True))
    plain = told[""]
    with ThreadPoolExecutor(len(CONFS)) as pool:
        reports = list(pool.map(lambda found: _report(bench, found), runs))
    for conf, found, report in zip(CONFS, runs, reports, strict=True):
        name = conf or "plain"
        if "error" in found:
            yield Fact(what=f"{name}: run", memplan=found["error"], agrees=False)
            continue
        yield from _one(name, found, report)
    if "error" in plain or not reports[0] or "error" in reports[0]:
        return
    yield from _what_if(bench, told)


def _child(bench: Bench, index: int, conf: str) -> dict[str, Any]:
    """One setting, in a process of its own; and what the job's trace says of it."""
    name = f"recorded{index}"
    surroundings = os.environ | {"PYTORCH_CUDA_ALLOC_CONF": conf}
    if not conf:
        surroundings.pop("PYTORCH_CUDA_ALLOC_CONF")
    words = [
        sys.executable,
        ROOT / "benchmarks/gpu/runtime.py",
        "--child",
        "recorded",
        "--as",
        name,
        "--out",
        bench.folder,
    ]
    done = subprocess.run(
        list(map(str, words)), env=surroundings, capture_output=True, text=True, timeout=100, check=False
    )
    folder = bench.folder / name
    if not (folder / "stats.json").exists():
        return {"error": (done.stdout + done.stderr)[-1500:]}
    traced, whole = json.loads((folder / "stats.json").read_text("utf-8"))
    typed = [f"--{key.replace('_', '-')}={value}" for key, value in OPTIONS.items()]
    options = ["--alloc-conf", conf] if conf else []
    try:
        estimate = bench.answer("estimate", TARGETS / "llama.py", "--gpu", GPU, *typed, *options)["peak"]
    except Exception as error:  # noqa: BLE001 - one setting of several.
        estimate = {"error": str(error)[-500:]}
    return {"conf": conf, "folder": folder, "traced": traced, "whole": whole, "estimate": estimate}


def _report(bench: Bench, found: dict[str, Any]) -> dict[str, Any]:
    if "error" in found:
        return {}
    try:
        options = ["--recorded-conf", found["conf"]] if found["conf"] else []
        report: dict[str, Any] = bench.answer("snapshot", found["folder"] / "snapshot.pickle", *options)
    except Exception as error:  # noqa: BLE001 - one setting of several.
        return {"error": str(error)[-800:]}
    return report


def _one(name: str, found: dict[str, Any], report: dict[str, Any]) -> Iterator[Fact]:
    if "error" in report:
        yield Fact(what=f"{name}: memplan snapshot", memplan=report["error"], agrees=False)
        return
    stats, replay = found["whole"], report["replay"]
    yield figure(f"{name}: history", report["history"], note=f"{report['conf']} {report['notes']}"[:600])
    if not replay.get("compared", True):
        yield Fact(what=f"{name}: replay", memplan=replay, agrees=False)
        return
    yield equal(
        f"{name}: addresses that the replay predicts",
        replay["addresses_matched"],
        replay["addresses"],
        str(replay["first_mismatch"]),
    )
    yield equal(f"{name}: segments taken and returned", replay["segment_events_matched"], replay["segment_events"])
    yield equal(f"{name}: blocks in the end", replay["final_blocks_matched"], replay["final_blocks"])
    yield equal(f"{name}: peak reserved, replayed", replay["peak_reserved_bytes"], stats["reserved_bytes.all.peak"])
    yield equal(f"{name}: peak allocated, replayed", replay["peak_allocated_bytes"], stats["allocated_bytes.all.peak"])
    peak = report["peak"]
    yield equal(f"{name}: peak allocated, analysed", peak.get("allocated_bytes"), stats["allocated_bytes.all.peak"])
    estimate = found["estimate"]
    for what in ("requested", "allocated", "reserved"):
        truth = found["traced"][f"{what}_bytes.all.peak"]
        yield near(
            f"{name}: {what} peak of the first steps, estimated",
            estimate.get(f"{what}_bytes"),
            truth,
            0.01,
            str(estimate.get("error", "")),
        )


def _what_if(bench: Bench, told: dict[str, dict[str, Any]]) -> Iterator[Fact]:
    """The plain history under the other settings, against real runs with these."""
    others = [conf for conf in CONFS if conf and "garbage" not in conf]
    options = [word for conf in others for word in ("--alloc-conf", conf)]
    report = bench.answer("snapshot", told[""]["folder"] / "snapshot.pickle", *options)
    rows = {row["conf"]: row for row in report["what_if"]}
    for conf in others:
        if "error" in told[conf]:
            continue
        row, stats = rows.get(conf, {}), told[conf]["whole"]
        ours = row.get("peak_reserved_bytes")
        note = f"exact: {ours == stats['reserved_bytes.all.peak']}"
        yield near(f"what if {conf}: peak reserved", ours, stats["reserved_bytes.all.peak"], 0.01, note)
    yield holds("what-ifs were made", rows, sorted(rows))
    for kind in ("perfetto", "speedscope"):
        file = bench.own / f"snapshot.{kind}"
        done = bench.command("snapshot", told[""]["folder"] / "snapshot.pickle", "-f", f"{kind}={file}", "-q")
        yield holds(f"export {kind}", done.returncode == 0 and file.exists(), done.returncode, note=done.stderr[-300:])
