"""Traces made of shallow models against traces of the whole: every record, every byte of the answer, and the time.

Prints the machine, then for each preset and setting whether the folded answer is the whole one, at how many blocks it
was traced, and CPU seconds of both. Exit status 1 where an answer differs. Times are of one process, one after another,
after a first trace of the setting that is not counted; run it alone on the machine:

    python benchmarks/folded.py [--settings plain,lora] [preset ...]
"""

import argparse
import json
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
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
    "fsdp=8": {"parallel": parse_parallel("fsdp=8"), "checkpoint": "full"},
    "tp=2": {"parallel": parse_parallel("tp=2")},
    "clip": {"clip_grad_norm": 1.0},
    "trainer": {"loop": "trainer"},
    "inference": {"mode": "inference"},
}
"""Name → what it changes of bf16 and AdamW."""
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
    bare = replace(trace, graph=None, constants={}, trace_seconds=0.0, folded=None)
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


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("presets", nargs="*", default=[preset.name for preset in list_presets()])
    parser.add_argument("--settings", default=",".join(SETTINGS))
    options = parser.parse_args()
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, torch {torch.__version__}, "
        f"transformers {transformers.__version__}"
    )
    print(f"batch 1 x {SEQ_LEN}, bf16, AdamW, for {GPU}; CPU seconds of the trace, folded and whole")
    print(
        f"{'preset':18} {'setting':10} {'of':>4} {'blocks':>12} {'':10} {'ops':>8} {'folded':>8} {'whole':>8} {'x':>6}"
    )
    counts: Counter[str] = Counter()
    for setting in options.settings.split(","):
        answered(JobSpec(target=PresetTarget(name=options.presets[0]), seq_len=SEQ_LEN, **SETTINGS[setting]))
        for name in options.presets:
            word, row = compared(name, setting)
            counts[word] += 1
            print(row, flush=True)
    print(", ".join(f"{count} {word}" for word, count in sorted(counts.items())))
    sys.exit(1 if counts["DIFFERENT"] else 0)


if __name__ == "__main__":
    main()
