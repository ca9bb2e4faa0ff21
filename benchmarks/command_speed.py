"""How long ``memplan estimate`` takes as a whole, against importing the model's code and tracing it.

Prints the machine, then medians of CPU seconds (user and system, children included) over interleaved rounds: the bare
import of torch and the model's code, the trace as the report gives it, the whole command, and the whole over twice the
import plus the trace (the bound that this project sets itself is 1); then the same job for another GPU of equal traits,
and the first question once more, out of the cache (the bound of either is a second).

    python benchmarks/command_speed.py [--rounds 5] [--preset llama-3.1-8b]
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile

_IMPORT = "import torch, transformers.models.llama.modeling_llama"


def cpu_seconds(command: list[str]) -> tuple[float, str]:
    """CPU seconds of a command with all its children, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def estimate(preset: str, gpu: str, cache: str) -> tuple[float, str]:
    """CPU seconds of an estimate, and its report."""
    # On these cards it fits: advice for one that it does not fit would trace more jobs.
    job = [f"preset:{preset}", "--gpu", gpu, "--precision", "bf16", "--seq-len", "1024", "--json", "--cache-dir", cache]
    return cpu_seconds([sys.executable, "-m", "memplan", "estimate", *job])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--preset", default="llama-3.1-8b")
    options = parser.parse_args()
    imports, traces, wholes, others, agains = [], [], [], [], []
    for _ in range(options.rounds):
        imports.append(cpu_seconds([sys.executable, "-c", _IMPORT])[0])
        with tempfile.TemporaryDirectory() as cache:
            seconds, printed = estimate(options.preset, "h200", cache)
            wholes.append(seconds)
            traces.append(json.loads(printed)["timings"]["trace_seconds"])
            others.append(estimate(options.preset, "gh200-96g", cache)[0])
            agains.append(estimate(options.preset, "h200", cache)[0])
    alone, trace, whole, other, again = map(statistics.median, (imports, traces, wholes, others, agains))
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {load}, Python {platform.python_version()}")
    print(f"{options.preset}: medians of {options.rounds} rounds, CPU seconds")
    print(
        f"{'import':>7} {'trace':>7} {'whole':>7} {'whole / (2 import + trace)':>27} {'another GPU':>12} {'again':>7}"
    )
    print(f"{alone:7.2f} {trace:7.2f} {whole:7.2f} {whole / (2 * alone + trace):27.2f} {other:12.2f} {again:7.2f}")


if __name__ == "__main__":
    main()
