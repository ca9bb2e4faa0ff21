"""Ten things that a newcomer wants in the first hour: how many commands until the answer, and how long they take.

Each task has what one types first and, where that gives no answer, what one would try next. It is answered by the
first command that ends as intended. The script is the tutorial's own; ``target.py`` is what had to be written by hand,
where a script is not taken as it is. Commands run in one folder, at 80 columns, in order, with an empty cache::

    python benchmarks/first_hour.py [--memplan CHECKOUT] [--show]

``--memplan`` names another checkout (an older one), whose package this Python then runs. ``--show`` prints what came.
"""

import argparse
import os
import platform
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMIT = 240
"""Seconds of one command."""
TARGET = """
import torch
from train_model import Model

def model(): return Model()
def batch(batch_size): return torch.randint(8192, (batch_size, 256))
def loss(logits, batch): return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.flatten())
"""
NOTEBOOK = """
import torch, memplan
from train_model import Model
print(memplan.estimate(Model(), torch.randint(8192, (8, 256)), gpu="t4").verdict)
"""
TASKS: Sequence[tuple[str, Sequence[str]]] = (
    ("Does Llama-3.1-8B train on an H100?", ("estimate llama-3.1-8b", "estimate preset:llama-3.1-8b --gpu h100-80g")),
    ("Does my script fit a T4?", ("estimate train.py --gpu t4", "estimate target.py --gpu t4")),
    (
        "Its largest batch there?",
        ("batch train.py --gpu t4", "batch target.py --gpu t4", "recommend target.py --gpu t4"),
    ),
    (
        "How would 160 fit?",
        ("recommend train.py --gpu t4 -- --batch-size 160", "recommend target.py --gpu t4 --batch-size 160"),
    ),
    (
        "Where to checkpoint, for 13 GiB?",
        (
            "checkpoint-plan train.py --gpu t4 --budget 13GiB -- --batch-size 160",
            "checkpoint-plan target.py --gpu t4 --budget 13GiB --batch-size 160",
        ),
    ),
    (
        "Which cards fit GPT-2 XL?",
        ("estimate gpt2-xl --gpu all -q", "estimate preset:gpt2-xl -q --gpu h100-80g --gpu a100-40g --gpu rtx-4090"),
    ),
    (
        "QLoRA of an 8B on 24 GB?",
        (
            "estimate llama-3.1-8b --gpu rtx-4090 --quantize nf4 --lora r=16",
            "estimate preset:llama-3.1-8b --gpu rtx-4090 --quantize nf4 --lora r=16",
        ),
    ),
    (
        "FSDP2 of an 8B on 8 A100-40?",
        (
            "estimate llama-3.1-8b --gpu a100-40g --parallel fsdp=8",
            "estimate preset:llama-3.1-8b --gpu a100-40g --parallel fsdp=8",
        ),
    ),
    ("A gate that CI can run?", ("init train.py && gate", "init target.py && gate", "init && gate")),
    ("From Python?", ("python notebook.py",)),
)
"""What is wanted → what is typed, the first attempt first; ``&&`` runs both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One line that was typed."""

    typed: str
    code: int
    seconds: float
    cpu: float
    said: str


def typed(line: str, folder: Path, environment: dict[str, str]) -> Attempt:
    """Type a line, and wait for what comes."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    code, said = 0, ""
    for part in line.split(" && "):
        words = shlex.split(part)
        command = [sys.executable, *(words[1:] if words[0] == "python" else ["-m", "memplan", *words])]
        try:
            done = subprocess.run(
                command, check=False, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT
            )
        except subprocess.TimeoutExpired:
            code, said = 124, f"no answer within {LIMIT} seconds"
            break
        code, said = done.returncode, done.stdout + done.stderr
        if not answers(part, code):
            break
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Attempt(typed=line, code=code, seconds=time.perf_counter() - began, cpu=cpu, said=said)


def answers(line: str, code: int) -> bool:
    """Is this the exit code of an answer? memplan's 1 is one (docs/errors-and-exit-codes.md), Python's an exception."""
    return code == 0 or (code == 1 and not line.startswith("python "))


def prepare(folder: Path) -> None:
    """Lay the tutorial's script and what a newcomer would write around it."""
    page = (ROOT / "docs" / "tutorial.md").read_text()
    [script] = re.findall(r"^```python\n(import argparse.*?)^```", page, re.MULTILINE | re.DOTALL)
    (folder / "train.py").write_text(script)
    (folder / "train_model.py").write_text(
        re.sub(r"parser.*?(?=class Block)", "\n\n", script, flags=re.DOTALL).split("\nmodel = ")[0]
    )
    (folder / "target.py").write_text(TARGET)
    (folder / "notebook.py").write_text(NOTEBOOK)


def main() -> None:
    """Print one row for each task."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memplan", type=Path, default=ROOT)
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {load}, Python {platform.python_version()}")
    print(f"{'task':<32} {'answered':>8} {'commands':>8} {'seconds':>8} {'CPU s':>6}  last typed")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        environment = {**os.environ, "PYTHONPATH": str(options.memplan.resolve()), "COLUMNS": "80",
                       "MEMPLAN_CACHE_DIR": f"{name}/cache"}  # fmt: skip
        for task, lines in TASKS:
            attempts: list[Attempt] = []
            for line in lines:
                attempts.append(typed(line, folder, environment))
                if answers(line, attempts[-1].code):
                    break
            answered = "yes" if answers(attempts[-1].typed, attempts[-1].code) else "no"
            seconds, cpu = (sum(getattr(each, what) for each in attempts) for what in ("seconds", "cpu"))
            print(
                f"{task:<32} {answered:>8} {len(attempts):>8} {seconds:>8.1f} {cpu:>6.1f}  {attempts[-1].typed}",
                flush=True,
            )
            if options.show:
                for each in attempts:
                    print(f"$ memplan {each.typed}    # exit code {each.code}\n{each.said}")


if __name__ == "__main__":
    main()
