"""Predict the allocation streams of published CUDA snapshots and compare them event for event.

    python benchmarks/cuda_streams.py [FOLDER]

FOLDER holds the snapshots (default: ``$MEMPLAN_DATA/snapshots``). For each known program it prints how many of the real
events the predicted stream holds in the same order with the same size, and the error of the peak in requested bytes.
"""

import os
import sys
import time
from difflib import SequenceMatcher
from pathlib import Path

from cuda_streams.programs import PROGRAMS, predict
from cuda_streams.snapshot import Step, stream_of


def in_common(real: tuple[Step, ...], predicted: tuple[Step, ...]) -> int:
    """Events that both streams hold in the same order (as difflib finds them)."""
    shorter = min(len(real), len(predicted))
    same = next((i for i in range(shorter) if real[i] != predicted[i]), shorter)
    if same == len(real) == len(predicted):
        return same
    matcher = SequenceMatcher(None, real[same:], predicted[same:], autojunk=False)
    return same + sum(block.size for block in matcher.get_matching_blocks())


def main(folder: Path) -> None:
    """Print one line per program."""
    events = matched = 0
    for name, program in PROGRAMS.items():
        if not (folder / name).exists():
            print(f"{name}: not in {folder}")
            continue
        real = stream_of(folder / name)
        started = time.perf_counter()
        predicted = predict(program)
        seconds = time.perf_counter() - started
        common = in_common(real.steps, predicted.steps)
        events, matched = events + len(real.steps), matched + common
        share = 100 * common / max(len(real.steps), len(predicted.steps))
        print(
            f"{name}: {len(real.steps)} events, {share:.2f} % in common; peak {real.peak():,} B, "
            f"error {predicted.peak() - real.peak():+,} B; base {predicted.base_bytes - real.base_bytes:+,} B; "
            f"{seconds:.1f} s"
        )
    print(f"all: {events:,} events, {matched:,} in common")


if __name__ == "__main__":
    data = Path(os.environ.get("MEMPLAN_DATA", Path(__file__).parents[2] / "shared" / "data"))
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else data / "snapshots")
