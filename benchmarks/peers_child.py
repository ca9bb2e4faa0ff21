"""One estimator on one job; a child of ``peers``."""

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).parents[1]))

import cpu_measure
from cuda_streams import large_lm, medium_lm

Steps = Callable[[], None]


def main(tool: str, job: dict[str, Any]) -> None:
    """Print the peak that the tool predicts, in bytes, and how long that took."""
    torch.set_num_threads(1)
    predict = {"memplan": _memplan, "memtracker": _memtracker, "torchinfo": _torchinfo}[tool]
    kind = job.pop("kind")
    started = time.perf_counter()
    peak, started = predict(kind, job, started)
    print(json.dumps({"peak": int(peak), "seconds": time.perf_counter() - started}))


def _memplan(kind: str, job: dict[str, Any], started: float) -> tuple[int, float]:
    if kind == "snapshot":
        from published.snapshots import RUNS, predict

        started = time.perf_counter()
        return predict(RUNS[job["name"]]).requested, started
    from memplan.job.load import load_source
    from memplan.job.spec import FileTarget, JobSpec
    from memplan.tracing.records import DeviceTraits
    from memplan.tracing.run import trace_job

    spec = JobSpec(target=FileTarget(path=Path(job.pop("path"))), **job)
    started = time.perf_counter()
    trace = trace_job(lambda: load_source(spec), spec, DeviceTraits(kind="cpu"))
    live = peak = 0
    for event in trace.events:
        size = trace.storages[event.storage].nbytes
        live += size if event.action == "alloc" else -size
        peak = max(peak, live)
    return peak, started


def _memtracker(kind: str, job: dict[str, Any], started: float) -> tuple[int, float]:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    build = _zoo(job) if kind == "zoo" else _program(job["name"])
    started = time.perf_counter()
    with FakeTensorMode():
        model, optimizer, steps = build()
        tracker = MemTracker()
        tracker.track_external(model, *([optimizer] if optimizer else []))
        with tracker:
            steps()
            if kind == "zoo" or not _parts(job["name"])[0]:
                # It knows one iteration at a time; the optimizer's state is there from the second on.
                tracker.reset_mod_stats()
                steps()
    peaks = tracker.get_tracker_snapshot("peak")
    return max(sum(sizes[key] for key in sizes if "otal" in str(key)) for sizes in peaks.values()), started


def _torchinfo(kind: str, job: dict[str, Any], started: float) -> tuple[int, float]:
    import torchinfo
    from torch._subclasses.fake_tensor import FakeTensorMode

    build = _zoo(job) if kind == "zoo" else _program(job["name"])
    batch = _batch(kind, job)
    started = time.perf_counter()
    # On real tensors for models that run here, on fake ones for those that are too large.
    with FakeTensorMode() if kind == "snapshot" else contextlib.nullcontext():
        model, _, _ = build()
        data = batch()
        if isinstance(data, tuple):
            data = list(data[: type(model).forward.__code__.co_argcount - 1])
        summary = torchinfo.summary(model, input_data=data, verbose=0, mode="train")
    # ModelStatistics.__repr__: "Estimated Total Size".
    return summary.total_input + summary.total_output_bytes + summary.total_param_bytes, started


def _zoo(job: dict[str, Any]) -> Callable[[], tuple[Any, Any, Steps]]:
    target = cpu_measure.load(Path(job["path"]))
    options = argparse.Namespace(
        batch_size=job["batch_size"],
        seq_len=None,
        grad_accum=job["grad_accum"],
        clip_grad_norm=job["clip_grad_norm"],
        autocast=job["precision"] != "fp32",
        steps=1,
    )

    def build() -> tuple[Any, Any, Steps]:
        model = target.model().train()
        parameters = model.parameters()
        optimizer = target.optimizer(parameters) if hasattr(target, "optimizer") else torch.optim.AdamW(parameters)
        loop = cpu_measure.own_steps if hasattr(target, "train_step") else cpu_measure.plain_steps
        return model, optimizer, lambda: loop(model, optimizer, target, options)

    return build


def _batch(kind: str, job: dict[str, Any]) -> Callable[[], Any]:
    if kind == "zoo":
        target = cpu_measure.load(Path(job["path"]))
        return lambda: target.batch(job["batch_size"], None)
    _, context, _, _ = _parts(job["name"])
    return lambda: torch.zeros(medium_lm.BATCH, context, dtype=torch.long)


def _parts(name: str) -> tuple[bool, int, bool, bool]:
    """``wedsonlin_medium_128_training`` → large?, context, trains?, under autocast?"""
    large = name.startswith("kkaitlyn")
    context = 128 if large else int(name.split("_")[2])
    trains = name.endswith(("fullstep", "training"))
    return large, context, trains, name.endswith("mixed") or context == 512


def _program(name: str) -> Callable[[], tuple[Any, Any, Steps]]:
    large, context, trains, autocast = _parts(name)
    source: Any = large_lm if large else medium_lm

    def build() -> tuple[Any, Any, Steps]:
        model = source.LanguageModel(context)
        optimizer = source.AdamW(model.parameters()) if trains else None
        tokens = torch.zeros(source.BATCH, context, dtype=torch.long)

        def steps() -> None:
            quiet = torch.no_grad() if name.endswith("inference") else contextlib.nullcontext()
            with quiet, torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                output = model(tokens)
                if optimizer is not None:
                    loss = source.cross_entropy(output, tokens)
            if optimizer is not None:
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()

        return model, optimizer, steps

    return build


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
