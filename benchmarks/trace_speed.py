"""How long a recorded trace takes, against the same steps under bare FakeTensorMode in the same process.

Prints the machine, then per preset: CPU seconds of the bare run and of the trace (medians of interleaved rounds), their
ratio, and the ratio of a larger model's trace to the first one's. Run it alone on the machine:

    python benchmarks/trace_speed.py [--rounds 5] [preset ...]
"""

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from memplan.hardware.catalog import load_profile
from memplan.job.load import load_source
from memplan.job.source import ModelSource
from memplan.job.spec import JobSpec, PresetTarget
from memplan.tracing.records import DeviceTraits
from memplan.tracing.run import trace_job

_SEQ_LEN = 2048


def bare(source: ModelSource) -> float:
    """Build the model and run two AdamW steps under FakeTensorMode alone; seconds of the steps."""
    with FakeTensorMode():
        torch.set_default_dtype(torch.bfloat16)
        model = source.model()
        torch.set_default_dtype(torch.float32)
        model.train()
        started = time.process_time()
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            batch = source.batch(1, _SEQ_LEN)
            model(**batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return time.process_time() - started


def traced(source: ModelSource, spec: JobSpec, device: DeviceTraits) -> float:
    """Seconds from the end of building to the finished record; an fx graph is made of it where one is asked for."""
    marks: list[tuple[str, float]] = []
    trace = trace_job(lambda: source, spec, device, progress=lambda text: marks.append((text, time.process_time())))
    ended = time.process_time()
    assert trace.graph is not None
    assert len(trace.steps) == 2
    return ended - next(at for text, at in marks if text == "tracing step 1")


def median_of(rounds: int, runs: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Run each in turn, round after round, so that a drifting machine hits all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            seconds[name].append(run())
    return seconds


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("presets", nargs="*", default=["llama-3.1-8b", "llama-3.1-70b"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gpu", default="h100-80g")
    options = parser.parse_args()
    device = DeviceTraits.of(load_profile(options.gpu))
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, torch {torch.__version__}"
    )
    print(f"batch 1 x {_SEQ_LEN}, bf16, AdamW, two steps, for {options.gpu}; medians of {options.rounds} rounds")
    print(f"{'preset':16} {'bare s':>8} {'trace s':>8} {'trace/bare':>11} {'(min-max)':>13} {'to first':>9}")
    first = None
    for name in options.presets:
        spec = JobSpec(target=PresetTarget(name=name), precision="bf16", seq_len=_SEQ_LEN)
        source = load_source(spec)
        runs = {"bare": lambda s=source: bare(s), "trace": lambda s=source, j=spec: traced(s, j, device)}
        seconds = median_of(options.rounds, runs)
        ratios = [b / a for a, b in zip(seconds["bare"], seconds["trace"], strict=True)]
        alone, whole = statistics.median(seconds["bare"]), statistics.median(seconds["trace"])
        first = first or whole
        spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
        print(
            f"{name:16} {alone:8.2f} {whole:8.2f} {statistics.median(ratios):11.2f} {spread:>13} {whole / first:9.2f}"
        )


if __name__ == "__main__":
    main()
