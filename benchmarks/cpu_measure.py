"""Run a few real training steps of a target file on the CPU and report every allocation (a child of ``cpu_truth``).

The truth is what ``torch.profiler`` reports of PyTorch's CPU allocator, from the import of the file to the end;
oneDNN's scratchpads and reordered tensors pass through it too. One thread is used, so that the figures do not depend on
the machine's core count.
"""

import argparse
import contextlib
import importlib.util
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.profiler import record_function

from memplan.job.defaults import caller
from memplan.job.loss_items import loss_items
from memplan.runtime.profile.kineto import ProfiledEvent as Event
from memplan.runtime.profile.kineto import Profiler
from memplan.validate.run import STEP


def load(path: Path) -> ModuleType:
    """Import a target file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def default_loss(output: Any) -> torch.Tensor:
    """What stands for a target's ``loss``."""
    return output if isinstance(output, torch.Tensor) else output.loss


def train(target: ModuleType, options: argparse.Namespace) -> None:
    """The loop that is measured: build, then ``steps`` optimizer steps, as a training script writes them."""
    model = target.model().train()
    parameters = model.parameters()
    optimizer = target.optimizer(parameters) if hasattr(target, "optimizer") else torch.optim.AdamW(parameters)
    loop = own_steps if hasattr(target, "train_step") else plain_steps
    loop(model, optimizer, target, options)


def own_steps(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, target: ModuleType, options: argparse.Namespace
) -> None:
    """The target's own step; what it returns lives until the next."""
    for _ in range(options.steps):
        with record_function(STEP):
            batch = None
            batch = target.batch(options.batch_size, options.seq_len)
            result = target.train_step(model, optimizer, batch)  # noqa: F841 - the name keeps it alive


def plain_steps(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, target: ModuleType, options: argparse.Namespace
) -> None:
    """Forward, loss, backward, step, ``zero_grad``; the loop's names live on into the next iteration."""
    # Which items of a batch are inputs is the contract of target files, and none of the figures that are compared.
    forward = caller(loss_items(target.loss) if hasattr(target, "loss") else ())
    for _ in range(options.steps):
        with record_function(STEP):
            for _ in range(options.grad_accum):
                batch = None
                batch = target.batch(options.batch_size, options.seq_len)
                with torch.autocast("cpu", torch.bfloat16) if options.autocast else contextlib.nullcontext():
                    output = forward(model, batch)
                    loss = target.loss(output, batch) if hasattr(target, "loss") else default_loss(output)
                    if options.grad_accum > 1:
                        loss = loss / options.grad_accum
                loss.backward()
            if options.clip_grad_norm:
                torch.nn.utils.clip_grad_norm_(model.parameters(), options.clip_grad_norm)
            optimizer.step()
            optimizer.zero_grad()


def run(body: Callable[[], None]) -> tuple[list[Event], list[int]]:
    """Profile ``body``; all allocator events in order of time, and the end times of its steps."""
    profiler = Profiler()
    profiler.start()
    body()
    seen = profiler.finish(STEP.__eq__)
    return seen.events, seen.ends


def summarize(events: list[Event], ends: list[int]) -> dict[str, Any]:
    """Peak, live bytes at the end of each step, and the op around the peak."""
    live, peak, where, marks = 0, 0, (), []
    waiting = list(ends)
    for time, _, nbytes, around in events:
        while waiting and time > waiting[0]:
            waiting.pop(0)
            marks.append(live)
        live += nbytes
        if live > peak:
            peak, where = live, around
    marks += [live] * len(waiting)
    return {"peak": peak, "at": list(where), "steps": marks, "end": live, "events": len(events)}


def main() -> None:
    """Measure one target and print its figures as JSON; ``--events`` writes the whole stream."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target", type=Path)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--seq-len", type=int)
    parser.add_argument("--grad-accum", type=int, default=1)
    parser.add_argument("--clip-grad-norm", type=float)
    parser.add_argument("--autocast", action="store_true")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--events", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    random.seed(0)
    events, ends = run(lambda: train(load(options.target), options))
    if options.events:
        options.events.write_text(json.dumps([(ptr, nbytes, around) for _, ptr, nbytes, around in events]))
    print(json.dumps(summarize(events, ends)))


if __name__ == "__main__":
    main()
