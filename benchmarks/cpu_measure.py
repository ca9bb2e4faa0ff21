"""Run a few real training steps of a target file on the CPU and report every allocation (a child of ``cpu_truth``).

The truth is what ``torch.profiler`` reports of PyTorch's CPU allocator, from before the model is built to the end. Memory
that oneDNN takes by itself (its scratchpads and reordered weights) does not pass through that allocator and is not counted.
One thread is used, so that the figures do not depend on the machine's core count.
"""

import argparse
import contextlib
import importlib.util
import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

STEP = "truth.step"
"""Name of the profiler range around one optimizer step."""


def load(path: Path) -> ModuleType:
    """Import a target file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def call(model: torch.nn.Module, target: ModuleType, batch: Any) -> torch.Tensor:
    """Forward and loss, by the contract of target files."""
    if isinstance(batch, dict):
        output = model(**batch)
    elif isinstance(batch, tuple):
        code = type(model).forward.__code__
        # ``nn.Sequential`` and most models name their inputs; self is not one of them.
        output = model(*batch[: code.co_argcount - 1])
    else:
        output = model(batch)
    if hasattr(target, "loss"):
        return target.loss(output, batch)
    return output if isinstance(output, torch.Tensor) else output.loss


def train(target: ModuleType, options: argparse.Namespace) -> None:
    """The loop that is measured: build, then ``steps`` optimizer steps."""
    model = target.model()
    model.train()
    make = getattr(target, "optimizer", torch.optim.AdamW)
    optimizer = make(model.parameters())
    for _ in range(options.steps):
        with record_function(STEP):
            step(model, optimizer, target, options)


def step(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, target: ModuleType, options: argparse.Namespace
) -> None:
    """One optimizer step; its locals die with it."""
    if hasattr(target, "train_step"):
        target.train_step(model, optimizer, target.batch(options.batch_size, options.seq_len))
        return
    optimizer.zero_grad()
    for _ in range(options.grad_accum):
        batch = target.batch(options.batch_size, options.seq_len)
        with torch.autocast("cpu", torch.bfloat16) if options.autocast else contextlib.nullcontext():
            loss = call(model, target, batch)
        (loss / options.grad_accum if options.grad_accum > 1 else loss).backward()
    if options.clip_grad_norm:
        torch.nn.utils.clip_grad_norm_(model.parameters(), options.clip_grad_norm)
    optimizer.step()


def allocations(roots: list[Any]) -> Iterator[tuple[int, int, int, tuple[str, ...]]]:
    """Every allocator event as (time, address, bytes, names of the ranges around it, outermost first)."""
    stack = [(root, ()) for root in roots]
    while stack:
        node, around = stack.pop()
        if str(node.tag).endswith("Allocation"):
            fields = node.typed[1]
            yield node.start_time_ns, fields.ptr, fields.alloc_size, around
        else:
            stack.extend((child, (*around, node.name)) for child in node.children)


def run(body: Callable[[], None]) -> tuple[list[tuple[int, int, int, tuple[str, ...]]], list[int]]:
    """Profile ``body``; all allocator events in order of time, and the end times of its steps."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        body()
    results = profiler.profiler.kineto_results
    ends = [event.start_ns() + event.duration_ns() for event in results.events() if event.name() == STEP]
    # The sort is stable, but the walk above is not in order: equal times are settled by the profiler's own sequence.
    return sorted(allocations(results.experimental_event_tree()), key=lambda event: event[0]), sorted(ends)


def summarize(events: list[tuple[int, int, int, tuple[str, ...]]], ends: list[int]) -> dict[str, Any]:
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
    target = load(options.target)
    events, ends = run(lambda: train(target, options))
    if options.events:
        options.events.write_text(json.dumps([(ptr, nbytes, around) for _, ptr, nbytes, around in events]))
    print(json.dumps(summarize(events, ends)))


if __name__ == "__main__":
    main()
