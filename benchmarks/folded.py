"""Traces made of shallow models against traces of the whole: every record, every byte of the answer, and the time.

Prints the machine, then for each preset and setting whether the folded answer is the whole one, at how many blocks it
was traced, and CPU seconds of both. Exit status 1 where an answer differs. Times are of one process, one after another,
after a first trace of the setting that is not counted; run it alone on the machine:

    python benchmarks/folded.py [--settings plain,lora] [preset ...]
    python benchmarks/folded.py --of benchmarks/results/folded.txt      # the summary of rows that were kept
"""

import argparse
import json
import os
import platform
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
import transformers

from memplan.errors import MemplanError
from memplan.hardware.catalog import load_profile
from memplan.job.adapters import parse_lora
from memplan.job.parallel import parse_parallel
from memplan.job.presets.catalog import list_presets
from memplan.job.spec import JobSpec, PresetTarget
from memplan.measure.answer import compose
from memplan.measure.document import ESTIMATE
from memplan.measure.measurer import measuring
from memplan.tracing.records import Trace

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "full": {"checkpoint": "full"},
    "mixed": {"precision": "bf16-mixed", "grad_accum": 4, "optimizer_impl": "fused"},
    "lora": {"lora": parse_lora("r=16")},
    "qlora": {"lora": parse_lora("r=16"), "quantize": "nf4"},
    "8-bit": {"optimizer": "adamw-8bit", "loss_chunks": 8, "offload_activations": True},
    "fsdp=8": {"parallel": parse_parallel("fsdp=8"), "checkpoint": "full"},
    "tp=2": {"parallel": parse_parallel("tp=2")},
    "clip": {"clip_grad_norm": 1.0},
    "fsdp clip": {"parallel": parse_parallel("fsdp=8"), "clip_grad_norm": 1.0, "precision": "bf16-mixed"},
    "tp clip": {"parallel": parse_parallel("fsdp=4,tp=2"), "clip_grad_norm": 1.0, "checkpoint": "full"},
    "cp clip": {"parallel": parse_parallel("fsdp=4,cp=2"), "clip_grad_norm": 1.0},
    "hsdp clip": {"parallel": parse_parallel("hsdp=2x4"), "clip_grad_norm": 1.0},
    "trainer": {"loop": "trainer"},
    "inference": {"mode": "inference"},
}
"""Name → what it changes of bf16 and AdamW."""
EQUAL = re.compile(r" (\d+) +\d+(?:\+\d+)+ equal .* ([\d.]+)$")
"""Blocks and factor of a row that is equal."""
GPU = "h100-80g"
SEQ_LEN = 128
"""Tokens: what a trace costs hardly goes by it."""


def answered(spec: JobSpec) -> tuple[str, Trace, float]:
    """The JSON of an estimate but for times and ``folded``, the trace but for times, and CPU seconds of the trace."""
    profile = load_profile(GPU)
    started = time.process_time()
    with measuring() as measurer:
        trace = measurer.lifetimes(spec, profile).trace
        seconds = time.process_time() - started
        content = ESTIMATE.plain(compose(spec, profile, measurer.measure(spec, profile)))
    del content["timings"]
    content["trace"].pop("folded", None)
    # In what most is computed goes by depth, and is asked of programs alone, which are not folded.
    bare = replace(trace, graph=None, constants={}, trace_seconds=0.0, folded=None, computes_in="fp32")
    return json.dumps(content, sort_keys=True), replace(bare, folded=trace.folded), seconds


def compared(name: str, setting: str) -> tuple[str, str]:
    """What came of a preset at a setting: one word, and the row to print."""
    fields = {"precision": "bf16", "seq_len": SEQ_LEN, **SETTINGS[setting]}
    spec = JobSpec(target=PresetTarget(name=name), **fields)
    head = f"{name:18} {setting:10}"
    try:
        answer, trace, seconds = answered(spec)
        if trace.folded is None:
            return "not tried", f"{head} not tried"
        blocks, at = trace.folded.blocks, "+".join(map(str, trace.folded.traced))
        if trace.folded.refused:
            return "refused", f"{head} {blocks:>4} {at:>12} refused: {trace.folded.refused}"
        whole, truth, whole_seconds = answered(replace(spec, no_fold=True))
    except MemplanError as error:
        return "failed", f"{head} {error.what}"
    word = "equal" if answer == whole and replace(trace, folded=None) == truth else "DIFFERENT"
    times = f"{seconds:8.2f} {whole_seconds:8.2f} {whole_seconds / seconds:6.1f}"
    return word, f"{head} {blocks:>4} {at:>12} {word:10} {len(truth.ops):>8} {times}"


def summary(rows: Iterable[str]) -> str:
    """How many rows are equal, and what the folds of each depth save, in the median."""
    found = [match.groups() for row in rows if (match := EQUAL.search(row))]
    times: dict[int, list[float]] = {}
    for depth, factor in found:
        times.setdefault(int(depth), []).append(float(factor))
    factors = ", ".join(f"{depth} blocks {median(times[depth]):.1f}" for depth in sorted(times))
    return f"{len(found)} equal; times as fast, in the median: {factors}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("presets", nargs="*", default=[preset.name for preset in list_presets()])
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--of", type=Path, help="a table that was printed before: its summary alone")
    options = parser.parse_args()
    if options.of:
        print(summary(options.of.read_text(encoding="utf-8").splitlines()))
        return
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, torch {torch.__version__}, "
        f"transformers {transformers.__version__}"
    )
    print(f"batch 1 x {SEQ_LEN}, bf16, AdamW, for {GPU}; CPU seconds of the trace, folded and whole")
    print(
        f"{'preset':18} {'setting':10} {'of':>4} {'blocks':>12} {'':10} {'ops':>8} {'folded':>8} {'whole':>8} {'x':>6}"
    )
    counts: Counter[str] = Counter()
    rows: list[str] = []
    for setting in options.settings.split(","):
        answered(JobSpec(target=PresetTarget(name=options.presets[0]), seq_len=SEQ_LEN, **SETTINGS[setting]))
        for name in options.presets:
            word, row = compared(name, setting)
            counts[word] += 1
            rows.append(row)
            print(row, flush=True)
    print(", ".join(f"{count} {word}" for word, count in sorted(counts.items())))
    print(summary(rows))
    sys.exit(1 if counts["DIFFERENT"] else 0)


if __name__ == "__main__":
    main()
