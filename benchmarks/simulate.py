"""Fragmentation of every example under every policy after 1,000 steps, and streams of 100 million tokens per step.

    python benchmarks/simulate.py [--steps 1000] [--only WORDS …]

Prints Markdown; ``benchmarks/results/simulate.txt`` keeps the last run that was looked at. Nothing here needs a GPU.
"""

import argparse
import platform
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memplan.hardware.catalog import load_profile
from memplan.job.spec import FileTarget, HubTarget, JobSpec, PresetTarget, Target
from memplan.simulate.compose import Scenario, simulate
from memplan.simulate.lengths import parse_distribution
from memplan.simulate.records import Simulation
from memplan.units import format_bytes

EXAMPLES = Path(__file__).parents[1] / "examples"
GPU = "h100-80g"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One simulation."""

    name: str
    """What the table calls it."""
    target: Target
    """What is traced."""
    lengths: tuple[str, ...] = ("fixed",)
    """Distributions of the length, one simulation each."""
    options: dict[str, Any]
    """Further fields of the job."""
    most_steps: int = 1_000_000
    """Steps at most."""


def example(name: str, *lengths: str, **options: Any) -> Case:
    """An example of this repository, at its own length and at those given."""
    batch = f", batch {options['batch_size']}" if "batch_size" in options else ""
    return Case(
        name=name + batch,
        target=FileTarget(path=EXAMPLES / f"{name}.py"),
        lengths=("fixed", *lengths),
        options=options,
    )


CASES = (
    example("gpt_pretraining", "uniform:128-1024", "lognormal:400,0.6,max=1024"),
    example("gpt_pretraining", "uniform:128-1024", batch_size=8, precision="bf16-mixed"),
    example("lora_finetuning", "uniform:128-1024", "lognormal:400,0.6,max=1024"),
    example("gradient_accumulation", "uniform:32-256"),
    example("gradient_accumulation", "uniform:32-256", batch_size=64),
    example("lstm_language_model", "uniform:5-70"),
    example("lstm_language_model", "uniform:5-70", batch_size=64),
    example("resnet_classification"),
    example("resnet_classification", batch_size=64),
    Case(
        name="hf:examples/hf_directory",
        target=HubTarget(location=str(EXAMPLES / "hf_directory")),
        lengths=("fixed", "uniform:256-2048"),
        options={},
    ),
)
LONG = (
    Case(
        name="preset:llama-3.1-8b, 128 x 1,048,576 tokens, bf16",
        target=PresetTarget(name="llama-3.1-8b"),
        lengths=("fixed:1048576",),
        options={"batch_size": 128, "precision": "bf16"},
    ),
    Case(
        name="preset:gpt2, 1,048,576 x 128 tokens",
        target=PresetTarget(name="gpt2"),
        lengths=("fixed:128", "uniform:64-128"),
        options={"batch_size": 1_048_576},
        most_steps=100,
    ),
)
"""Steps of 134 million tokens. No card holds them: what is shown is that memplan does. Tensors beyond 2**31 elements
are worked on in parts, each with scratch of its own, so that a step has 100,000 requests and more."""


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    print(f"{time.strftime('%Y-%m-%d')}  Python {platform.python_version()}, {platform.machine()}, {GPU}")
    for title, cases in (("examples", CASES), ("long steps", LONG)):
        chosen = [case for case in cases if not options.only or any(word in case.name for word in options.only)]
        if chosen:
            _table(title, chosen, options.steps)


def _table(title: str, cases: list[Case], steps: int) -> None:
    print(f"\n{title}: share of the reserved peak that was never asked for at once, after {steps} steps unless named\n")
    names: list[str] = []
    for case in cases:
        for lengths in case.lengths:
            started = time.perf_counter()
            done = _simulate(case, lengths, min(steps, case.most_steps))
            if not names:
                names = [run.name for run in done.policies]
                print("| case | " + " | ".join(names) + " | recommended | reserved | traced | s | MiB |")
                print("|---" * (len(names) + 6) + "|")
            played = f", {case.most_steps} steps" if case.most_steps < steps else ""
            print(_row(f"{case.name}, {lengths}{played}", done, time.perf_counter() - started), flush=True)


def _simulate(case: Case, lengths: str, steps: int) -> Simulation:
    scenario = Scenario(steps=steps, lengths=parse_distribution(lengths))
    return simulate(JobSpec(target=case.target, **case.options), load_profile(GPU), scenario, timeout=3600)


def _row(name: str, done: Simulation, seconds: float) -> str:
    shares = [f"{100 * run.fragmentation:.1f} %" + ("*" if run.failed_step else "") for run in done.policies]
    best = done.recommendation
    chosen = next((run for run in done.policies if best and run.name == best.policy), None)
    held = f"{100 * chosen.fragmentation:.1f} %, {format_bytes(chosen.peak_reserved)}" if chosen else "none fits"
    # On Linux kibibytes; the children's figure is the largest of any one process.
    memory = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) // 1024
    traces = len(done.workload.traced_lengths)
    return (
        f"| {name} | "
        + " | ".join(shares)
        + f" | {best.conf or 'defaults' if best else '-'} | {held} | {traces} | {seconds:.0f} | {memory} |"
    )


if __name__ == "__main__":
    main()
