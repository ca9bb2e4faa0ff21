"""CPU time of the commands that need no torch, beside that of Python itself. Target: at most 0.4 s each.

Run it where nothing else runs.
"""

import resource
import statistics
import subprocess
import sys

RUNS = 7
TARGET_SECONDS = 0.4
COMMANDS: dict[str, tuple[str, ...]] = {
    "python -c pass": ("-c", "pass"),
    "memplan --help": ("-m", "memplan", "--help"),
    "memplan estimate --help": ("-m", "memplan", "estimate", "--help"),
    "memplan gpus": ("-m", "memplan", "gpus"),
    "memplan gpus h100-80g": ("-m", "memplan", "gpus", "h100-80g"),
    "memplan presets": ("-m", "memplan", "presets"),
    "memplan explain MP001": ("-m", "memplan", "explain", "MP001"),
}


def cpu_seconds(words: tuple[str, ...]) -> float:
    """User plus system time of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    """Print the table."""
    print(f"{'command':<26}{'median':>9}{'worst':>9}   of {RUNS} runs, CPU seconds; target {TARGET_SECONDS}")
    for name, words in COMMANDS.items():
        cpu_seconds(words)  # Compiles what has not been compiled.
        seconds = [cpu_seconds(words) for _ in range(RUNS)]
        print(f"{name:<26}{statistics.median(seconds):>9.3f}{max(seconds):>9.3f}")


if __name__ == "__main__":
    main()
