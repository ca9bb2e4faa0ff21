"""A program on several real ranks, watched on each of them, beside what ``memplan estimate`` says of the first.

    torchrun --nproc-per-node 2 benchmarks/program_ranks.py train.py --cpu
    memplan estimate --gpu cpu -- torchrun --nproc-per-node 2 train.py --cpu

The launcher's processes talk by gloo; data sets and weights have the same stand-ins as in an estimate.
"""

import os
import sys
import warnings

from memplan.job.program import parse_words
from memplan.job.spec import JobSpec
from memplan.validate.run import run_here

STEPS = 2
SECONDS = 600.0


def main() -> None:
    """Run this process's rank and print its peak."""
    warnings.simplefilter("ignore")
    run = run_here(
        JobSpec(target=parse_words(sys.argv[1:]).target), device="cpu", steps=STEPS, traced_steps=STEPS, seconds=SECONDS
    )
    print(f"rank {os.environ['RANK']}: {run.measured.peaks.requested:,} bytes requested", flush=True)


if __name__ == "__main__":
    main()
