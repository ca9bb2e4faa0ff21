"""Is the order of predicted throughputs that of published ones? Rows with both memory and tokens per second.

    python benchmarks/recommend.py [--out benchmarks/results/recommend_time.txt]

Rows of one table ran on one machine with one code; Kendall's tau is over the pairs of a table. Published rows ran
compiled; tracing compiled models of this size takes minutes, so all rows of a table are traced eagerly, which leaves
their order to the changes that the rows differ in. What eager and compiled cost beside each other is a table of its own
(--compiled).
"""

import argparse
import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path

from memplan.errors import MemplanError
from memplan.estimate.local import measure
from memplan.hardware.catalog import load_profile
from memplan.job.adapters import Lora
from memplan.job.load import load_source
from memplan.job.spec import JobSpec, PresetTarget
from memplan.job.usercode import forgotten_modules
from memplan.lifetime.build import build_lifetimes
from memplan.plan.time.clock import step_time
from memplan.trace.records import DeviceTraits
from memplan.trace.run import trace_job

FLAGS = "torchtune README, optimization flags, 2024-11 (Llama 3.2 3B, 2 x 4096, bf16, one A100, compiled)"
FLAGS_EAGER = "the same table: eager against compiled"
METHODS = "torchtune README @0031bfb0, 2024-09 (Llama 3.1 8B, 2 x 2048, bf16, compiled)"
_LORA = Lora(rank=8, alpha=16.0, targets=("q_proj", "v_proj"))
"""torchtune's default of its lora_finetune_single_device configurations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One published run."""

    table: str
    """Where it stands."""
    name: str
    """What it is there."""
    gpu: str
    """Profile."""
    spec: JobSpec
    """As near as options come to it."""
    gib: float
    """Published peak."""
    tokens_per_second: float
    """Published throughput."""


_THREE = JobSpec(target=PresetTarget(name="llama-3.2-3b"), batch_size=2, seq_len=4096, precision="bf16")
_EIGHT = JobSpec(target=PresetTarget(name="llama-3.1-8b"), batch_size=2, seq_len=2048, precision="bf16")
_CHUNKED = replace(_THREE, loss_chunks=8)
_SAVING = replace(_CHUNKED, checkpoint="full")
_FULL = replace(_EIGHT, checkpoint="full", optimizer="paged-adamw-8bit", optimizer_in_backward=True)
_ADAPTED = replace(_EIGHT, checkpoint="full", lora=_LORA)


def rows(*, compiled: bool) -> Iterator[Row]:
    """All rows."""
    flags = partial(Row, table=FLAGS, gpu="a100-80g")
    yield flags(name="compile", spec=_THREE, gib=51.0, tokens_per_second=8998)
    yield flags(name="+ chunked cross-entropy", spec=_CHUNKED, gib=42.9, tokens_per_second=9174)
    yield flags(name="+ activation checkpointing", spec=_SAVING, gib=24.9, tokens_per_second=7210)
    in_backward = replace(_SAVING, optimizer_in_backward=True)
    yield flags(name="+ optimizer in backward", spec=in_backward, gib=23.1, tokens_per_second=7309)
    offloaded = replace(in_backward, offload_activations=True)
    yield flags(name="+ activation offloading", spec=offloaded, gib=21.8, tokens_per_second=7301)
    yield flags(name="+ 8-bit AdamW", spec=replace(offloaded, optimizer="adamw-8bit"), gib=17.6, tokens_per_second=6960)
    yield flags(name="LoRA", spec=replace(_SAVING, lora=_LORA), gib=8.5, tokens_per_second=8210)
    # peft holds norms and embeddings in fp32 then, so that the step needs autocast to be in bf16.
    quantised = replace(_SAVING, lora=_LORA, quantize="nf4", precision="bf16-mixed")
    yield flags(name="QLoRA", spec=quantised, gib=4.6, tokens_per_second=8035)
    methods = partial(Row, table=METHODS)
    yield methods(name="full, 4090", gpu="rtx-4090", spec=_FULL, gib=18.9, tokens_per_second=1650)
    yield methods(name="full, A6000", gpu="a6000", spec=_FULL, gib=37.4, tokens_per_second=2579)
    yield methods(name="LoRA, 4090", gpu="rtx-4090", spec=_ADAPTED, gib=16.2, tokens_per_second=3083)
    yield methods(name="LoRA, A6000", gpu="a6000", spec=_ADAPTED, gib=30.3, tokens_per_second=4699)
    quantised = replace(_ADAPTED, quantize="nf4", precision="bf16-mixed")
    yield methods(name="QLoRA, 4090", gpu="rtx-4090", spec=quantised, gib=7.4, tokens_per_second=2413)
    if compiled:
        eager = partial(Row, table=FLAGS_EAGER, gpu="a100-80g")
        yield eager(name="packed, eager", spec=_THREE, gib=60.0, tokens_per_second=7075)
        yield eager(name="compile", spec=replace(_THREE, compile="inductor"), gib=51.0, tokens_per_second=8998)


def predict(row: Row) -> tuple[float, float]:
    """Tokens per second and GiB allocated."""
    profile = load_profile(row.gpu)
    with forgotten_modules():
        trace = trace_job(partial(load_source, row.spec), row.spec, DeviceTraits.of(profile))
    seconds = step_time(trace, row.spec, profile).total
    allocated = measure(build_lifetimes(trace), profile).memory.peak_allocated
    return row.spec.batch_size * (row.spec.seq_len or 1) / seconds, allocated / 2**30


def kendall(pairs: Sequence[tuple[float, float]]) -> float:
    """Kendall's tau-a: concordant less discordant pairs, as a share of all."""
    signs = [(a - c) * (b - d) for (a, b), (c, d) in combinations(pairs, 2)]
    return sum((sign > 0) - (sign < 0) for sign in signs) / len(signs) if signs else 1.0


APART = 0.05
"""Published rates that differ by less are as good as equal: runs of one configuration do."""


def ordered(pairs: Sequence[tuple[float, float]]) -> tuple[int, int]:
    """Pairs of rows in the right order, and how many there are, of those whose published rates are apart."""
    told = [(a - c) * (b - d) > 0 for (a, b), (c, d) in combinations(pairs, 2) if abs(a - c) > APART * max(a, c)]
    return sum(told), len(told)


def conclude(pairs: Mapping[str, Sequence[tuple[float, float]]]) -> Iterator[str]:
    """How well each table's order was told."""
    for table, found in pairs.items():
        right, count = ordered(found)
        yield f"tau {kendall(found):+.2f}; {right} of {count} pairs more than 5 % apart in order; {table}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compiled", action="store_true")
    given = parser.parse_args()
    gc.disable()
    lines: list[str] = []
    pairs: dict[str, list[tuple[float, float]]] = {}

    def say(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    for row in rows(compiled=given.compiled):
        if row.table not in pairs:
            say(f"\n{row.table}\n{'':30}{'tok/s':>9}{'predicted':>11}{'GiB':>8}{'predicted':>11}")
            pairs[row.table] = []
        try:
            rate, gib = predict(row)
        except MemplanError as error:
            say(f"{row.name:30}{row.tokens_per_second:9.0f}  {error.what}")
            continue
        pairs[row.table].append((row.tokens_per_second, rate))
        say(f"{row.name:30}{row.tokens_per_second:9.0f}{rate:11.0f}{row.gib:8.1f}{gib:11.1f}")
        gc.collect()
    say("")
    for line in conclude(pairs):
        say(line)
    if given.out:
        given.out.write_text("\n".join(lines).lstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
