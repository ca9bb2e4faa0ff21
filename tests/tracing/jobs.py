"""Small jobs for tests of the trace: a source without a file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from memplan.job.source import ModelSource
from memplan.job.spec import FileTarget, JobSpec
from memplan.tracing.records import DeviceTraits, Trace
from memplan.tracing.run import trace_job

CPU = DeviceTraits(kind="cpu")


def source(model: Callable[[], torch.nn.Module], batch: Callable[..., Any], **parts: Any) -> ModelSource:
    return ModelSource(model=model, batch=lambda size, length: batch(size), **parts)


def spec(**options: Any) -> JobSpec:
    return JobSpec(target=FileTarget(path=Path("model.py")), **options)


def trace(given: ModelSource, device: DeviceTraits = CPU, **options: Any) -> Trace:
    return trace_job(lambda: given, spec(**options), device)
