"""One row: its script's memory benchmark, run on fake tensors, and the peak that the script would have seen."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import torch

from memplan.hardware.catalog import load_profile
from memplan.replay.allocator import make_allocator
from memplan.replay.policy import AllocatorPolicy
from memplan.seam.replace import Replacement, replaced
from memplan.tracing.recorder import Recorder
from memplan.tracing.records import DeviceTraits
from memplan.tracing.semantics import semantics
from memplan.tracing.tracing_branches import fakes_pass_for_real
from memplan.tracing.triton_kernels import idle_kernels
from memplan.tracing.values import Values
from memplan.tracing.world import fake_world
from published.case import Prediction
from published.liger.exclusions import reason_against
from published.liger.older import as_of_transformers_4
from published.liger.releases import Program, Release, imported
from published.liger.rows import Row

GPUS = {
    "NVIDIA A100-SXM4-80GB": "a100-80g",
    "NVIDIA B200": "b200",
    "NVIDIA GeForce RTX 3090": "rtx-3090",
    "NVIDIA GeForce RTX 4090": "rtx-4090",
    "NVIDIA H100 80GB HBM3": "h100-80g",
    "NVIDIA H100 PCIe": "h100-80g-pcie",
}
"""Name by torch → memplan's profile."""

RUNS = 2
"""Runs of the measured function. The scripts take the median of ten; from the second on all are alike."""


@dataclass(slots=True)
class Window:
    """What a script measures: runs of a function, each as a range of events."""

    recorder: Recorder
    runs: int
    ranges: list[tuple[int, int]] = field(default_factory=list)

    def test_memory(self, func: Callable[[], Any], *_: object, **__: object) -> tuple[float, float, float]:
        """Stands in for ``_test_memory`` of benchmark/scripts/utils.py."""
        events = self.recorder.ledger.events
        for _run in range(self.runs):
            first = len(events)
            func()
            self.ranges.append((first, len(events)))
        return 0.0, 0.0, 0.0


def predict(row: Row, release: Release) -> Prediction:
    """The peaks of a row's program.

    Args:
        row: The row.
        release: Where its program is.

    Raises:
        Exception: Whatever the script raises on fake tensors.
    """
    with _recording(DeviceTraits.of(load_profile(GPUS[row.gpu]))) as recorder, imported(release) as program:
        window = Window(recorder, runs=1)
        recorder.recording = True
        benchmark = _memory_benchmark(program, window)
        for provider in row.providers:
            earlier = replace(row, provider=provider, mode="full")
            # What the process has done before leaves the workspaces of cuBLAS behind.
            if reason_against(earlier) is None:
                benchmark(_run_input(program, earlier))
        window.runs = RUNS
        benchmark(_run_input(program, row))
        return _peaks(recorder, window.ranges[-1])


@contextmanager
def _recording(device: DeviceTraits) -> Iterator[Recorder]:
    """A recorder put together as ``memplan.tracing.run`` does."""
    with ExitStack() as stack:
        stack.enter_context(fake_world())
        stack.enter_context(fakes_pass_for_real())
        stack.enter_context(replaced((Replacement("torch.compile", _as_written),)))
        for owner, name, value in as_of_transformers_4():
            stack.enter_context(mock.patch.object(owner, name, value))
        means = stack.enter_context(semantics(device, "auto"))
        values = Values()
        recorder = Recorder(device, means.scratch_rules, means.place_rule, values)
        means.ask_host(recorder.references.is_host)
        recorder.user_code = means.user_code
        stack.enter_context(idle_kernels(device, recorder.references.forget, values.assume))
        stack.enter_context(recorder.watching())
        recorder.references.default_place = "host"
        yield recorder


def _as_written(function: Any = None, **_: object) -> Any:
    """``torch.compile`` of what only stands beside the measured code: rows of compiled code are excluded."""
    return (lambda given: given) if function is None else function


def _memory_benchmark(program: Program, window: Window) -> Callable[[Any], Any]:
    """The script's function of one configuration, with its measurement replaced."""
    for module in (program.script, program.utils):
        vars(module)["_test_memory"] = window.test_memory
    functions = vars(program.script)
    # Scripts that also sweep over models have a second function for that.
    names = [name for name in functions if name.startswith("bench_memory") and not name.endswith("_model_config")]
    if names:
        own: Callable[[Any], Any] = functions[names[0]]
        return own
    # From 0.8.1 on, some scripts have theirs made of what sets a configuration up.
    setup = next(value for name, value in functions.items() if name.startswith("setup_"))
    built: Callable[[Any], Any] = vars(program.utils)["build_memory_bench_fn"](setup)
    return built


def _run_input(program: Program, row: Row) -> Any:
    config = dict(row.config)
    if "dtype" in config:
        config["dtype"] = getattr(torch, config["dtype"].partition(".")[2])
    return vars(program.utils)["SingleBenchmarkRunInput"](
        x=row.x, kernel_provider=row.provider, kernel_operation_mode=row.mode, extra_benchmark_config=config
    )


def _peaks(recorder: Recorder, window: tuple[int, int]) -> Prediction:
    """Highest figures within a range of events, all events before it played as well."""
    allocator, live = make_allocator(AllocatorPolicy()), {}
    storages = recorder.ledger.storages()
    highest = [0, 0, 0]
    for position, event in enumerate(recorder.ledger.events[: window[1]]):
        if storages[event.storage].place == "host":
            continue
        if event.action == "free":
            allocator.free(live.pop(event.storage))
        else:
            live[event.storage] = allocator.allocate(storages[event.storage].nbytes, 0)
        if position >= window[0] - 1:
            figures = allocator.requested, allocator.allocated, allocator.reserved
            highest = [max(pair) for pair in zip(highest, figures, strict=True)]
    return Prediction(requested=highest[0], allocated=highest[1], reserved=highest[2])
