"""Truth on CPU: the predicted peak of tensor bytes against what the CPU allocator gave out, over a zoo of models.

Every model in ``zoo/`` runs three real optimizer steps in a process of its own (``cpu_measure``: torch.profiler's
memory events, one thread) and is traced by memplan for the ``cpu`` device. Usage::

    python benchmarks/cpu_truth.py [NAME ...]
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row: a target file and the options that it runs with."""

    name: str
    batch_size: int = 16
    grad_accum: int = 1
    clip_grad_norm: float | None = None
    autocast: bool = False
    target: str = ""
    folder: str = "zoo"

    @property
    def path(self) -> Path:
        """The target file."""
        return HERE / self.folder / f"{self.target or self.name}.py"


CASES = (
    Case(name="resnet"),
    Case(name="unet"),
    Case(name="convnext"),
    Case(name="autoencoder", batch_size=32),
    Case(name="gan", batch_size=64),
    Case(name="lstm_lm"),
    Case(name="gru_classifier"),
    Case(name="transformer_encoder"),
    Case(name="vit"),
    Case(name="mixer"),
    Case(name="gpt2"),
    Case(name="bert"),
    Case(name="t5"),
    Case(name="llama"),
    Case(name="lora"),
    Case(name="tied"),
    Case(name="moe", batch_size=8),
    Case(name="moe_capacity", batch_size=8),
    Case(name="recommender", batch_size=512),
    Case(name="gnn"),
    Case(name="ema", batch_size=256),
    Case(name="adafactor", batch_size=512),
    Case(name="checkpoint_nonreentrant", batch_size=512),
    Case(name="checkpoint_reentrant", batch_size=512),
    Case(name="autocast_bf16", batch_size=8),
    Case(name="vit-autocast", target="vit", autocast=True),
    Case(name="accumulate-plain", target="accumulate"),
    Case(name="accumulate", grad_accum=4, clip_grad_norm=1.0),
)
BLIND = tuple(
    Case(name=name, batch_size=64, folder="zoo_blind")
    for name in ("dqn", "mnist_cnn", "seq2seq", "siamese", "vae", "wavenet")
)
"""Written after the rules, without a look at them; no rule was changed for them since."""


def measured(case: Case) -> dict[str, Any]:
    """Run the case for real in a fresh process."""
    command = [sys.executable, str(HERE / "cpu_measure.py"), str(case.path), "--batch-size", str(case.batch_size)]
    command += ["--grad-accum", str(case.grad_accum)]
    if case.clip_grad_norm is not None:
        command += ["--clip-grad-norm", str(case.clip_grad_norm)]
    if case.autocast:
        command.append("--autocast")
    return _last_line(command)


def predicted(case: Case) -> dict[str, Any]:
    """Trace the case in a fresh process, as the command line does."""
    return _last_line([sys.executable, str(HERE / "cpu_predict.py"), json.dumps(_options(case))])


def _options(case: Case) -> dict[str, Any]:
    return {
        "path": str(case.path),
        "batch_size": case.batch_size,
        "grad_accum": case.grad_accum,
        "clip_grad_norm": case.clip_grad_norm,
        "precision": "bf16-mixed" if case.autocast else "fp32",
    }


def _last_line(command: list[str]) -> dict[str, Any]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parent)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["failed"])[-1]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="cases to run; all without")
    parser.add_argument("--blind", action="store_true", help="the models that no rule was written for")
    options = parser.parse_args()
    wanted = options.names
    print(_header())
    print(f"{'model':<26}{'real peak':>14}{'predicted':>14}{'error':>10}  peak at")
    errors = []
    for case in BLIND if options.blind else CASES:
        if wanted and case.name not in wanted:
            continue
        real, guess = measured(case), predicted(case)
        if "error" in real or "error" in guess:
            print(f"{case.name:<26}{real.get('peak', '-'):>14}  {guess.get('error') or real.get('error')}")
            continue
        error = 100 * (guess["peak"] / real["peak"] - 1)
        errors.append(abs(error))
        print(
            f"{case.name:<26}{real['peak']:>14,}{guess['peak']:>14,}{error:>+9.3f}%  {guess['at']} | {real['at'][-1]}"
        )
    if errors:
        print(f"{len(errors)} models: median |error| {statistics.median(errors):.4f} %, worst {max(errors):.4f} %")


def _header() -> str:
    from importlib.metadata import version

    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers"))
    capability = torch_capability()
    return f"{_processor()} ({capability}), Python {platform.python_version()}, {versions}, {time.strftime('%Y-%m-%d')}"


def torch_capability() -> str:
    """The instruction set that decides oneDNN's layouts."""
    import torch

    return torch.backends.cpu.get_cpu_capability()


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    main()
