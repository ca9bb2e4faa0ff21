"""Does a measured timeline lie on the predicted one? GPT-2 as published (124 M), trained on the CPU, all of it.

    python -m benchmarks.measured_timeline [--out FOLDER] [--pictures]

Predicts three steps of transformers' GPT2LMHeadModel (random weights, batch 2 x 128, AdamW) with ``memplan estimate
--gpu cpu --timeline``, trains them for real under ``memplan.profile(depth="full")`` in a process of its own, lays one
over the other as ``memplan report run.json --plan plan.json`` does, and prints how far apart the curves are. Needs
transformers and about 4 GB; ``--pictures`` (Chromium, Pillow) renews those of ``docs/runtime-profile.md``. One thread
on both sides: kernels take scratch for each.

This file is also the target: ``model``, ``batch``, ``optimizer`` and ``train_step`` below are what both sides run.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

BATCH, LENGTH, STEPS = 2, 128, 3
ROOT = Path(__file__).parents[1]
PICTURES = {"measured-timeline.png": False, "measured-timeline-dark.png": True}
"""File → dark?"""
MOST_BYTES, WIDTH = 300_000, 1120


def model() -> torch.nn.Module:
    """GPT-2 small with transformers' own defaults, dropout included."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config())


def batch(batch_size: int) -> dict[str, torch.Tensor]:
    """Tokens."""
    return {"input_ids": torch.randint(0, 50257, (batch_size, LENGTH))}


def optimizer(parameters: Any) -> torch.optim.Optimizer:
    """AdamW as published."""
    return torch.optim.AdamW(parameters, lr=1e-4)


def train_step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: dict[str, torch.Tensor]) -> Any:
    """One step."""
    loss = model(**batch, labels=batch["input_ids"]).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def train(file: Path) -> None:
    """Train for real, and save the recording."""
    import memplan

    torch.set_num_threads(1)
    with memplan.profile("gpt2", depth="full", device="cpu") as run:
        with memplan.profile("build"):
            network = model()
            steps = optimizer(network.parameters())
        tokens = loss = None
        for _ in range(STEPS):
            tokens = None  # The old batch goes before the next is made, and a step begins once that is there.
            tokens = batch(BATCH)
            run.step()
            with memplan.profile("step"):
                loss = train_step(network, steps, tokens)
        del loss
    run.recording.save(file)


def main() -> None:
    """Predict, train, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="keep plan.json, run.json and timeline.html there")
    parser.add_argument("--pictures", action="store_true", help="renew docs/pictures/measured-timeline*.png")
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(options.train)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = options.out or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        compare(folder)
        if options.pictures:
            take_pictures(folder / "timeline.html")


def compare(folder: Path) -> None:
    """Both sides, and what ``memplan report`` says of them."""
    plan, run = folder / "plan.json", folder / "run.json"
    target = str(Path(__file__).relative_to(ROOT))
    size = ("--batch-size", str(BATCH))
    call("-m", "memplan", "estimate", target, "--gpu", "cpu", *size, "--timeline", "-f", f"json={plan}")
    call("-m", "benchmarks.measured_timeline", "--train", str(run))
    outputs = ("-f", "text", "-f", f"html={folder / 'timeline.html'}", "-f", f"json={folder / 'comparison.json'}")
    print(call("-m", "memplan", "report", str(run), "--plan", str(plan), *outputs))
    found = json.loads((folder / "comparison.json").read_text("utf-8"))["comparison"]
    largest, events = found["largest_deviation"], found["events"]
    peak = found["measured_peak_bytes"]
    print(f"peak: predicted {found['predicted_peak_bytes']:,} B, measured {peak:,} B")
    print(f"largest deviation of the curves at {events['compared']:,} events: {abs(largest['bytes']):,} B", end=" ")
    print(f"({abs(largest['bytes']) / 2**20:.6f} MiB, {100 * abs(largest['bytes']) / peak:.7f} % of the peak)")
    print(f"median deviation: {found['median_deviation_bytes']:,} B")
    print(f"between them, where events differ: up to {found['between_bytes']:,} B")
    print(f"matched: {events['matched']:,} of {events['predicted']:,} predicted and {events['measured']:,} measured")


def call(*words: str) -> str:
    """Run Python on one thread; its output."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "80"}
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


def take_pictures(page: Path) -> None:
    """From the top of the page down to the table of its steps."""
    from PIL import Image

    from benchmarks.html_pictures import paletted
    from tests.report.html.chromium import Chromium

    browser = Chromium(page.parent / "browser")
    try:
        for name, dark in PICTURES.items():
            browser.open(page.as_uri(), width=WIDTH, dark=dark)
            raw, file = page.with_suffix(".png"), ROOT / "docs" / "pictures" / name
            browser.picture(raw, first=".top", last="[data-part=pieces]", around=16)
            paletted(Image.open(raw).convert("RGB")).save(file, optimize=True)
            print(f"{name}: {file.stat().st_size} bytes")
            if file.stat().st_size > MOST_BYTES:
                raise SystemExit(f"{name} is larger than {MOST_BYTES} bytes")
    finally:
        browser.close()


if __name__ == "__main__":
    main()
