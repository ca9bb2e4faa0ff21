"""Run what memplan does beside training on the card at hand, each part against a truth of its own.

    python benchmarks/gpu/runtime.py --out DIR [--only PART ...] [--budget SECONDS]
    python benchmarks/gpu/runtime.py --out DIR --device cpu --tiny        # tries the benchmark itself
    python benchmarks/gpu/runtime.py --show results/runtime/FILE.json     # prints what was found on a card

Truths are torch's own counters and snapshots, NVML, nvidia-smi, and clocks. Every part is a function of `card/` in a
process of its own with a time limit, and writes each fact down at once, so that one that fails loses no other and
little of its own. Parts of the first group run side by side; those of the second take turns with the card.
"""

import argparse
import functools
import gzip
import importlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
for place in (HERE, HERE.parents[1]):
    if str(place) not in sys.path:
        sys.path.insert(0, str(place))

TOGETHER = (
    "planning.plan_llama", "planning.plan_chain", "planning.predictions", "watching.pytest", "watching.leaks",
    "adapting.batches", "adapting.pools", "planning.graphs", "planning.compiled", "allocating.allocator",
)  # fmt: skip
"""They time nothing that matters, or need no card."""
ALONE = (
    "watching.profile", "planning.checkpoint_llama", "planning.checkpoint_chain", "planning.times", "adapting.staging",
    "watching.monitor", "watching.command",
)  # fmt: skip
"""They time, or fill the card: each waits for its turn."""
SIZE, GPU = "MEMPLAN_WORKLOAD_SIZE", "MEMPLAN_WORKLOAD_GPU"
MOST_PACKED = 4 * 2**20
"""Bytes of the largest snapshot that is kept."""


def main() -> None:
    """Run the parts, and print what they found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--show", type=Path, help="run nothing: print the facts of a file")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--gpu", default="h100-80g", help="the profile that predictions are made for")
    parser.add_argument("--budget", type=float, default=150.0, help="seconds after which parts are ended")
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--as", dest="called", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.show:
        report(json.loads(options.show.read_text("utf-8"))["parts"])
        return
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.child:
        child(options)
        return
    # Snapshots, plans and pages are large: what is worth keeping is packed.
    with tempfile.TemporaryDirectory(prefix="memplan-card-") as folder:
        options.work = Path(folder)
        run(options)


def child(options: argparse.Namespace) -> None:
    """One part, in this process: facts as lines of JSON."""
    module, _, name = options.child.rpartition(".")
    called = options.called or name
    with (options.out / f"{called}.jsonl").open("w", encoding="utf-8") as lines:

        def write(content: dict[str, Any]) -> None:
            lines.write(json.dumps(content, default=str, skipkeys=True) + "\n")
            lines.flush()

        began = time.monotonic()
        try:
            from card.bench import Bench, plain

            bench = Bench(folder=options.out, device=options.device, tiny=options.tiny, name=called)
            for fact in getattr(importlib.import_module(f"card.{module or 'allocating'}"), name)(bench):
                write(plain(fact))
        except BaseException:
            write({"error": traceback.format_exc()[-3000:], "seconds": round(time.monotonic() - began, 1)})
            raise
        write({"done": True, "seconds": round(time.monotonic() - began, 1)})


def run(options: argparse.Namespace) -> None:
    """All parts, within the budget."""
    began = time.monotonic()
    found: dict[str, Any] = {}
    chosen = [
        [part for part in group if not options.only or part.split(".")[1] in options.only]
        for group in (TOGETHER, ALONE)
    ]
    # Those that take turns need no CPU meanwhile, so that all of them may load what they need at once.
    for group, share in zip(chosen, (0.55, 1.0), strict=True):
        until = began + share * options.budget
        with ThreadPoolExecutor(options.jobs) as pool:
            for part, result in zip(
                group, pool.map(functools.partial(one, options=options, until=until), group), strict=True
            ):
                found[part.split(".")[1]] = result
        save(options, found)
    report(found)
    for file in (*options.work.glob("recorded*/snapshot.pickle"), *options.work.glob("command/*.pickle")):
        packed = gzip.compress(file.read_bytes(), compresslevel=4)
        if len(packed) < MOST_PACKED:
            (options.out / f"{file.parent.name}-{file.name}.gz").write_bytes(packed)


def one(part: str, options: argparse.Namespace, until: float) -> dict[str, Any]:
    """Run one part in a process, and read what it wrote."""
    name = part.split(".")[1]
    words = [sys.executable, __file__, "--child", part, "--out", options.work, "--device", options.device]
    words += ["--tiny"] if options.tiny else []
    threads = str(max(1, (os.cpu_count() or 2) // 4))
    surroundings = os.environ | {"OMP_NUM_THREADS": threads, SIZE: "tiny" if options.tiny else "full", GPU: options.gpu}
    if name.startswith("plan_") or name == "predictions":
        # The trace needs no card.
        surroundings["CUDA_VISIBLE_DEVICES"] = ""
    surroundings["MEMPLAN_CACHE_DIR"] = str(options.work / "cache")
    left = until - time.monotonic()
    log = options.out / f"{name}.log"
    began = time.monotonic()
    code: int | str = "no time was left"
    if left > 5:
        with log.open("w", encoding="utf-8") as output:
            process = subprocess.Popen(
                list(map(str, words)), stdout=output, stderr=output, env=surroundings, start_new_session=True
            )
            try:
                code = process.wait(timeout=left)
            except subprocess.TimeoutExpired:
                code = f"ended after {left:.0f} s"
                os.killpg(process.pid, 9)
                process.wait()
    result = read(options.work / f"{name}.jsonl") | {"wall_seconds": round(time.monotonic() - began, 1)}
    if code != 0:
        result["exit"] = code
        result["last_lines"] = log.read_text("utf-8", "replace").splitlines()[-15:] if log.exists() else []
    print(f"{name}: {code or 'done'} after {result['wall_seconds']} s, {len(result['facts'])} facts", flush=True)
    return result


def read(path: Path) -> dict[str, Any]:
    """The facts of a part, and how it ended."""
    result: dict[str, Any] = {"facts": []}
    for line in path.read_text("utf-8").splitlines() if path.exists() else []:
        content = json.loads(line)
        if "what" in content:
            result["facts"].append(content)
        else:
            result |= content
    return result


def save(options: argparse.Namespace, found: dict[str, Any]) -> None:
    """Everything, in one file."""
    content = {"format": 1, "environment": environment(options), "parts": found}
    (options.out / "runtime.json").write_text(json.dumps(content, indent=1, sort_keys=True), encoding="utf-8")


def environment(options: argparse.Namespace) -> dict[str, Any]:
    """The machine, its driver and packages."""
    names = ("torch", "transformers", "peft", "triton", "psutil", "nvidia-ml-py", "prometheus-client", "pytest")
    packages = {}
    for name in names:
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    found = {"packages": packages, "python": platform.python_version(), "platform": platform.platform()}
    found |= {"commit": options.commit, "cpus": os.cpu_count(), "tiny": options.tiny}
    found |= {"device": options.device, "profile": options.gpu}
    if options.device == "cuda":
        facts = "name,driver_version,memory.total,pcie.link.gen.current,pcie.link.width.current"
        words = ["nvidia-smi", f"--query-gpu={facts}", "--format=csv,noheader"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
        found["gpu"] = done.stdout.strip() or done.stderr.strip()
    return found


def report(found: dict[str, Any]) -> None:
    """A table: what disagrees first, then everything in short."""
    counts = {True: 0, False: 0, None: 0}
    for name, result in found.items():
        for fact in result["facts"]:
            agrees = fact.get("agrees")
            counts[agrees] += 1
            mark = {True: "ok", False: "NO", None: "  "}[agrees]
            text = f"{mark} {name:<18} {fact['what']}: {str(fact.get('memplan'))[:160]}"
            text += f" | {str(fact['truth'])[:120]}" if "truth" in fact else ""
            text += f"  [{fact['note'][:200]}]" if agrees is False and "note" in fact else ""
            print(text)
        if "error" in result or "exit" in result:
            last = result.get("error", "\n".join(result.get("last_lines", [])))
            print(f"!! {name}: {result.get('exit')}: {last[-700:]}")
    print(f"{counts[True]} agree, {counts[False]} do not, {counts[None]} are figures")


if __name__ == "__main__":
    main()
