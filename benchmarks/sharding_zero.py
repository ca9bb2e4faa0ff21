"""DeepSpeed's ZeRO traced, beside DeepSpeed's own estimators and the textbook: GPU, host and NVMe bytes of one rank.

    python benchmarks/sharding_zero.py [--preset NAME] [--ranks N] [--seq-len N] [--gpu NAME] [ROW …]
    python benchmarks/sharding_zero.py --approximation

Needs deepspeed. The estimators (stage_1_and_2.py and stage3.py, ``estimate_zero*_model_states_mem_needs``) speak of
parameters, gradients and optimizer states alone, and of the host memory of a whole node, here divided by its ranks; the
textbook (Rajbhandari et al. 2020, figure 1) of bytes per parameter. Neither knows activations, buckets or the CUDA
context, all of which the traced peak has. ``--approximation`` compares DeepSpeed's trace with what memplan makes of the
same jobs without DeepSpeed, which is where that approximation has its interval from (``memplan.job.zero``).
"""

import argparse
import importlib
import importlib.metadata
import importlib.util
import sys
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

# As a script, Python does not find memplan, which may be a checkout that is not installed.
sys.path.append(str(Path(__file__).parents[1]))

from memplan.hardware.catalog import load_profile
from memplan.job.parallel import Parallel, parse_parallel
from memplan.job.spec import JobSpec, PresetTarget
from memplan.job.zero import Zero
from memplan.measure.compose import estimate
from memplan.measure.measurer import measure
from memplan.measure.records import Estimate
from memplan.tracing.sharding.zero.library import deepspeed
from memplan.units import GIB, MIB

APPROXIMATED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    *((f"zero{stage}=8", "gpt2", {"batch_size": 2}) for stage in (1, 2, 3)),
    *((f"zero{stage}=8,offload=yes", "gpt2", {"batch_size": 2}) for stage in (1, 2, 3)),
    *((f"zero{stage}=64", "gpt2", {"precision": "fp32"}) for stage in (1, 2, 3)),
    *((f"zero{stage}=4", "gpt2", {"precision": "bf16-mixed", "grad_accum": 2}) for stage in (1, 2, 3)),
    *((f"zero{stage}=8", "llama-3.2-1b", {"checkpoint": "full"}) for stage in (1, 2, 3)),
    *((f"zero{stage}=8", "bert-base", {"batch_size": 16, "seq_len": 256}) for stage in (1, 2, 3)),
)
"""Ranks, preset and other options of the jobs that are traced with DeepSpeed and without it."""
ROWS: dict[str, tuple[int, Zero]] = {
    "zero1": (1, Zero()),
    "zero2": (2, Zero()),
    "zero3": (3, Zero()),
    "zero2 states on host": (2, Zero(offload_optimizer="cpu")),
    "zero3 states on host": (3, Zero(offload_optimizer="cpu")),
    "zero3 all on host": (3, Zero(offload_optimizer="cpu", offload_param="cpu")),
    "zero3 all on NVMe": (3, Zero(offload_optimizer="nvme", offload_param="nvme", param_buffer_count=24)),
    "zero3 hpZ 4": (3, Zero(hpz_partition_size=4)),
}
"""Name → stage and settings; all else is DeepSpeed's default."""


class States(NamedTuple):
    """What a formula gives for one rank, in bytes."""

    gpu: float
    host: float


def textbook(stage: int, zero: Zero, parameters: int, ranks: int) -> float | None:
    """Bytes of parameters and gradients in half precision and of Adam's states in fp32, on one rank's GPU."""
    if zero.offload_optimizer != "none":
        return None
    whole = {1: 4, 2: 2, 3: 0}[stage]
    return parameters * (whole + (16 - whole) / ranks)


def estimators(stage: int, zero: Zero, parameters: int, largest: int, ranks: int) -> States | None:
    """What DeepSpeed's own functions say; None for stage 1, which has none."""
    on_host = zero.offload_optimizer != "none"
    node = {"num_gpus_per_node": ranks, "num_nodes": 1, "cpu_offload": on_host}
    if stage == 1:
        return None
    # Else it would look for a GPU, and say that there is none.
    deepspeed()
    if stage == 2:
        module = importlib.import_module("deepspeed.runtime.zero.stage_1_and_2")
        host, gpu = module.estimate_zero2_model_states_mem_needs(parameters, **node)
    else:
        module = importlib.import_module("deepspeed.runtime.zero.stage3")
        host, gpu, _ = module.estimate_zero3_model_states_mem_needs(
            parameters, largest, cpu_offload_params=zero.offload_param != "none", zero_init=True, **node
        )
    return States(gpu=gpu, host=host / ranks)


def job(stage: int, zero: Zero, asked: argparse.Namespace) -> JobSpec:
    """The row's job: one sequence per rank, every block checkpointed, so that states weigh more than activations."""
    return JobSpec(
        target=PresetTarget(name=asked.preset),
        batch_size=1,
        seq_len=asked.seq_len,
        precision="bf16",
        checkpoint="full",
        parallel=Parallel(data=f"zero{stage}", shards=asked.ranks),
        zero=zero,
    )


def line(name: str, answer: Estimate, formula: States | None, book: float | None) -> str:
    """One row of the table."""
    peak, parts = answer.peak, answer.breakdown
    held = sum(parts[part] for part in ("parameter", "gradient", "optimizer_state"))
    sizes = (peak.allocated_bytes, peak.device_bytes, held, peak.host_bytes, peak.nvme_bytes)
    said = ("", "") if formula is None else tuple(f"{size / GIB:.2f}" for size in formula)
    cells = [f"{name:22}", *(f"{size / GIB:>9.2f}" for size in sizes), *(f"{each:>9}" for each in said)]
    return " ".join(
        [*cells, " " * 9 if book is None else f"{book / GIB:>9.2f}", f"{answer.timings['trace_seconds']:>7.1f}"]
    )


def approximations(gpu: str) -> None:
    """Print DeepSpeed's traced peaks over those of the approximation."""
    find, profile = importlib.util.find_spec, load_profile(gpu)

    def hidden(name: str, package: str | None = None) -> object:
        return None if name == "deepspeed" else find(name, package)

    print(f"{'':60} {'allocated MiB':>22} {'reserved MiB':>22}   DeepSpeed / approximation")
    ratios: list[float] = []
    for parallel, preset, options in APPROXIMATED:
        target, ranks = PresetTarget(name=preset), parse_parallel(parallel)
        spec = JobSpec(target=target, parallel=ranks, **{"precision": "bf16", "seq_len": 1024, **options})
        traced = measure(spec, profile).memory
        with patch("importlib.util.find_spec", hidden):
            ours = measure(spec, profile).memory
        pairs = (traced.peak_allocated, ours.peak_allocated), (traced.peak_reserved, ours.peak_reserved)
        ratios += [theirs / mine for theirs, mine in pairs]
        cells = "".join(f"{theirs / MIB:>12.1f}{mine / MIB:>11.1f}" for theirs, mine in pairs)
        print(f"{parallel:20} {preset:18} {options!s:60.60}{cells}   {ratios[-2]:.3f} {ratios[-1]:.3f}", flush=True)
    print(f"{len(APPROXIMATED)} jobs: {min(ratios):.3f} to {max(ratios):.3f}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of: {', '.join(ROWS)}")
    parser.add_argument("--preset", default="llama-3.1-8b")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--seq-len", type=int, default=2048)
    parser.add_argument("--gpu", default="h100-80gb")
    parser.add_argument("--largest-layer", type=int, default=128_256 * 4_096, help="parameters of the largest module")
    parser.add_argument("--approximation", action="store_true")
    asked = parser.parse_args()
    if asked.approximation:
        approximations(asked.gpu)
        return
    version = importlib.metadata.version("deepspeed")
    print(f"{asked.preset}, bf16, {asked.ranks} ranks, sequence {asked.seq_len}, {asked.gpu}, deepspeed {version}; GiB")
    heads = ("allocated", "device", "states", "host", "nvme", "ds gpu", "ds host", "textbook")
    print(" ".join([f"{'':22}", *(f"{head:>9}" for head in heads), f"{'trace s':>7}"]))
    for name in asked.rows or ROWS:
        stage, zero = ROWS[name]
        (result,) = estimate(job(stage, zero, asked), [load_profile(asked.gpu)])
        answer = result.estimate
        formula = estimators(stage, zero, answer.parameters, asked.largest_layer, asked.ranks)
        print(line(name, answer, formula, textbook(stage, zero, answer.parameters, asked.ranks)), flush=True)


if __name__ == "__main__":
    main()
