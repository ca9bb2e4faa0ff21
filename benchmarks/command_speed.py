"""How long ``memplan estimate`` takes as a whole, against importing the model's code and tracing it.

Prints the machine, then medians of CPU seconds (user and system, children included) over interleaved rounds: the bare
import of torch and the model's code, the trace as the report gives it, the whole command, and the whole over twice the
import plus the trace (the bound that this project sets itself is 1).

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

_IMPORT = "import torch, transformers.models.llama.modeling_llama"


def cpu_seconds(command: list[str]) -> tuple[float, str]:
    """CPU seconds of a command with all its children, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--preset", default="llama-3.1-8b")
    options = parser.parse_args()
    # A card on which it fits: advice for one that it does not fit would trace more jobs.
    estimate = [sys.executable, "-m", "memplan", "estimate", f"preset:{options.preset}", "--gpu", "h200", "--json"]
    estimate += ["--precision", "bf16", "--seq-len", "2048"]
    imports, traces, wholes = [], [], []
    for _ in range(options.rounds):
        imports.append(cpu_seconds([sys.executable, "-c", _IMPORT])[0])
        seconds, printed = cpu_seconds(estimate)
        wholes.append(seconds)
        traces.append(json.loads(printed)["timings"]["trace_seconds"])
    alone, trace, whole = (statistics.median(each) for each in (imports, traces, wholes))
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; {options.rounds} rounds")
    print(f"{'import s':>9} {'trace s':>9} {'whole s':>9} {'whole / (2 import + trace)':>27}")
    print(f"{alone:9.2f} {trace:9.2f} {whole:9.2f} {whole / (2 * alone + trace):27.2f}")


if __name__ == "__main__":
    main()
