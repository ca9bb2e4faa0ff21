"""Run the workloads on the device at hand, and write what was measured beside what was predicted.

    python benchmarks/gpu/run.py --out DIR [--only NAME ...] [--part K/N] [--budget SECONDS]
    python benchmarks/gpu/run.py --out DIR --device cpu --tiny        # tries the benchmark itself

Each workload runs in a process of its own with a time limit, so one that fails loses no other; the file in DIR is
written after each. Predictions are made meanwhile, in further processes.
"""

import argparse
import datetime as dt
import importlib.metadata
import importlib.util
import json
import platform
import re
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

if importlib.util.find_spec("memplan") is None:
    sys.path.insert(0, str(Path(__file__).parents[2]))

from packing import pack
from workloads import ROOT, WORKLOADS, Workload, set_size

from memplan.errors import MemplanError
from memplan.report.validate.json import DOCUMENT, PEAKS
from memplan.validate.compose import Limits, check_room, device_facts, predict, put_together, run_for_real, watched
from memplan.validate.profiles import profile_for
from memplan.validate.records import DeviceFacts, JobPrediction, RealRun

FORMAT = 1
"""Version of the file's layout."""
BLIND_STEPS = 4
"""Steps of a run that has no prediction: the first makes the optimizer's state, the others repeat."""
KEPT = ("assumptions", "breakdown", "fragmentation", "model", "not_modelled", "options", "peak", "timings", "trace")
"""What is kept of an estimate."""
PACKAGES = ("torch", "transformers", "peft", "diffusers", "triton")


class Session:
    """One device, one file of results.

    Args:
        facts: The device.
        options: The command line.
    """

    def __init__(self, facts: DeviceFacts, options: argparse.Namespace) -> None:
        self.facts, self.options = facts, options
        self.profile, self.note = profile_for(facts)
        self.free: int | None = None
        self.results: dict[str, Any] = {}
        self.path = options.out / file_name(facts, options)
        self.started = time.monotonic()

    def run(self, chosen: list[Workload]) -> None:
        """All chosen workloads in order, predictions ahead of them."""
        with watched(self.facts) as self.free, ThreadPoolExecutor(self.options.jobs) as pool:
            ahead = [(workload, pool.submit(self._predict, workload)) for workload in chosen]
            for workload, prediction in ahead:
                if self._is_late():
                    prediction.cancel()
                    self._keep(workload, {"error": "no time was left", "stage": "budget"})
                    continue
                self._keep(workload, self._one(workload, prediction))

    def _is_late(self) -> bool:
        return time.monotonic() - self.started > self.options.budget

    def _predict(self, workload: Workload) -> JobPrediction:
        missing = [name for name in workload.needs if name != "cuda" and importlib.util.find_spec(name) is None]
        if missing:
            raise MemplanError(f"it needs {', '.join(missing)}")
        if "cuda" in workload.needs and self.facts.kind != "cuda":
            raise MemplanError("it needs a CUDA device")
        spec, limit = workload.spec(tiny=self.options.tiny), self.options.timeout
        return predict(spec, self.profile, steps=self.options.steps, timeout=limit)

    def _one(self, workload: Workload, future: "Future[JobPrediction]") -> dict[str, Any]:
        began = time.monotonic()
        try:
            prediction = future.result()
            check_room(prediction, self.facts)
        except MemplanError as error:
            return self._unpredicted(workload, error)
        try:
            run = self._real(workload, prediction.steps, prediction.traced_steps)
        except MemplanError as error:
            return {"error": str(error), "stage": "run", "predicted": asdict(prediction.estimate.peak)}
        found = DOCUMENT.plain(put_together(self.facts, self.note, prediction, run))
        # What does not change from row to row stands once, at the top of the file.
        del found["device"], found["schema_version"], found["command"]
        found["estimate"] = {key: found["estimate"][key] for key in KEPT}
        found["target"] = found["target"].removeprefix(f"{ROOT}/")  # Where the repository lay is nobody's business.
        return found | self._stream(run) | {"wall_seconds": round(time.monotonic() - began, 2)}

    def _unpredicted(self, workload: Workload, error: MemplanError) -> dict[str, Any]:
        """The truth is worth having even where there is no prediction."""
        failure = {"error": str(error), "stage": "predict"}
        if "it needs" in error.what or "would need" in error.what or "takes about" in error.what:
            return failure
        try:
            run = self._real(workload, BLIND_STEPS, BLIND_STEPS)
        except MemplanError as second:
            return failure | {"run_error": str(second)}
        return failure | {"measured": PEAKS.plain(run.measured.peaks), "steps": run.steps} | self._stream(run)

    def _real(self, workload: Workload, steps: int, traced_steps: int) -> RealRun:
        limits = Limits(
            steps=steps,
            traced_steps=traced_steps,
            seconds=self.options.seconds_per_workload,
            timeout=self.options.timeout,
        )
        return run_for_real(workload.spec(tiny=self.options.tiny), self.facts, limits, free_before=self.free)

    def _stream(self, run: RealRun) -> dict[str, Any]:
        stream = run.measured.stream
        return {"stream": None if stream is None else pack(stream)}

    def _keep(self, workload: Workload, found: dict[str, Any]) -> None:
        self.results[workload.name] = found | {"kind": workload.kind}
        content = {
            "format": FORMAT,
            "environment": environment(self.options),
            "device": asdict(self.facts),
            "profile": asdict(self.profile) | {"note": self.note},
            "tiny": self.options.tiny,
            "workloads": self.results,
        }
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(content, sort_keys=True, indent=1), encoding="utf-8")
        part.replace(self.path)
        print(line(workload.name, found), flush=True)


def line(name: str, found: dict[str, Any]) -> str:
    """One workload's result in one line."""
    if "error" in found:
        return f"{name:<30}  {found['stage']}: {found['error'].splitlines()[0][:100]}"
    errors = []
    for figure in ("requested", "allocated", "reserved", "device"):
        ours, theirs = found["predicted"][f"{figure}_bytes"], found["measured"][f"{figure}_bytes"]
        known = ours is not None and theirs
        errors.append(f"{100 * (ours / theirs - 1):+9.3f}%" if known else f"{'-':>10}")
    alignment = found["alignment"]
    share = f"{100 * alignment['share']:8.3f}% of {alignment['real_events']:,}" if alignment else "no stream"
    peak = (found["measured"]["allocated_bytes"] or found["measured"]["requested_bytes"] or 0) / 2**20
    return f"{name:<30}{peak:>10,.0f} MiB {''.join(errors)}  {share}  {found.get('wall_seconds', 0):.0f} s"


HEADING = f"{'workload':<30}{'peak':>14} {'requested':>10}{'allocated':>10}{'reserved':>10}{'device':>10}  same events"


def file_name(facts: DeviceFacts, options: argparse.Namespace) -> str:
    """``DATE-GPU-torchX.json``."""
    words = [_today(), facts.name, "torch" + facts.versions["torch"]]
    words += ["tiny"] if options.tiny else []
    words += [f"part{options.part.replace('/', 'of')}"] if options.part else []
    return "-".join(re.sub(r"[^A-Za-z0-9.-]+", "_", word) for word in words) + ".json"


def environment(options: argparse.Namespace) -> dict[str, Any]:
    """Everything of the machine that could matter, and which memplan predicted."""
    versions = {}
    for name in PACKAGES:
        if importlib.util.find_spec(name) is not None:
            versions[name] = importlib.metadata.version(name)
    return {
        "date": _today(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": versions,
        "memplan_commit": options.commit or _commit(),
    }


def _today() -> str:
    return dt.datetime.now(tz=dt.UTC).date().isoformat()


def _commit() -> str:
    try:
        command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def choose(options: argparse.Namespace) -> list[Workload]:
    """The workloads asked for."""
    names = {workload.name for workload in WORKLOADS}
    unknown = sorted(set(options.only or ()) - names)
    if unknown:
        raise SystemExit(f"unknown: {', '.join(unknown)}; there are {', '.join(sorted(names))}")
    chosen = [workload for workload in WORKLOADS if not options.only or workload.name in options.only]
    if options.part:
        index, count = map(int, options.part.split("/"))
        chosen = chosen[index - 1 :: count]
    return chosen


def main() -> None:
    """Run, and print one line per workload."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the result file")
    parser.add_argument("--only", nargs="*", help="names of workloads; all without")
    parser.add_argument("--part", help="K/N: every N-th workload, from the K-th on")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--tiny", action="store_true", help="sizes that a CPU runs in seconds")
    parser.add_argument("--steps", type=int, help="steps of each run; as many as the prediction needs without")
    parser.add_argument("--seconds-per-workload", type=float, default=20.0, help="no further step begins after so long")
    parser.add_argument("--timeout", type=float, default=150.0, help="seconds after which a process is killed")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which no further workload begins")
    parser.add_argument("--jobs", type=int, default=3, help="predictions made at the same time")
    parser.add_argument("--commit", help="memplan's commit, where git cannot tell")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    set_size(tiny=options.tiny)
    session = Session(device_facts(options.device), options)
    print(f"{session.facts.name}, {session.facts.versions}, {session.note} -> {session.path}\n{HEADING}", flush=True)
    session.run(choose(options))


if __name__ == "__main__":
    main()
