"""Measures a CUDA device: its context, library workspaces and links. Called in a child process of its own."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional

from memplan.errors import UsageError
from memplan.units import MIB
from memplan.validate.calibration_records import HOST_TO_DEVICE, WITHIN_DEVICE, Calibration, Transfer
from memplan.validate.device import facts_here
from memplan.validate.records import DeviceFacts
from memplan.validate.watcher import free_before

COPIED = 256 * MIB
"""Bytes per copy: long enough for a link's full rate (beyond 64 MiB it no longer rises), short on any card."""
COPIES = 5
"""Copies of each kind; the first ones are slower, the best counts."""


def calibrate_here(device: str, progress: Callable[[str], None] = lambda _: None) -> Calibration:
    """Measure a device: ``auto``, ``cuda`` or ``cuda:N``.

    Raises:
        UsageError: It is no CUDA device, or none is there.
    """
    if device == "cpu":
        raise UsageError("only a CUDA device is calibrated", where="--device")
    if not torch.cuda.is_available():
        hint = "calibrate on the machine with the GPU, with a CUDA build of PyTorch"
        raise UsageError("PyTorch sees no CUDA device here", where="--device", hint=hint)
    index = torch.device(device if device.startswith("cuda") else "cuda").index or 0
    # The check creates no context; the watcher must create its own before this process does.
    if index >= torch.cuda.device_count():
        raise UsageError(f"there is no cuda:{index}; PyTorch sees {torch.cuda.device_count()}", where="--device")
    with free_before(index) as free:
        return Bench(torch.device("cuda", index), free, progress).run(facts_here(f"cuda:{index}"))


class Bench:
    """One device under measurement; what fails is noted, and the rest goes on.

    ``free`` is what it had left before this process's context; None if unknown.
    """

    def __init__(self, device: torch.device, free: int | None, progress: Callable[[str], None]) -> None:
        self._device, self._free, self._progress = device, free, progress
        self._notes: list[str] = []

    def run(self, facts: DeviceFacts) -> Calibration:
        """Everything in turn: the context must still be bare when this begins."""
        bare = self._outside_allocator()
        cublas = self._tried("the cuBLAS workspace", self._cublas_workspace)
        cudnn = self._tried("the cuDNN workspace", self._cudnn_workspace)
        self._progress("loading the kernels of training steps")
        self._tried("some kernels", self._load_kernels)
        loaded = self._outside_allocator()
        if self._free is None:
            self._notes.append("no second process could watch the device, so context and usable memory are not known")
        return Calibration(
            facts=facts,
            # The watcher's context was there already when it looked.
            usable_bytes=None if self._free is None or bare is None else min(self._free + bare, facts.total_bytes),
            context_low_bytes=bare,
            context_bytes=loaded,
            cublas_workspace_bytes=cublas,
            cudnn_workspace_bytes=cudnn,
            transfers=tuple(self._transfers()),
            notes=tuple(self._notes),
        )

    def _tried(self, what: str, measure: Callable[[], int]) -> int | None:
        try:
            return measure()
        except (RuntimeError, AttributeError) as error:
            self._notes.append(f"{what} could not be measured: {str(error).splitlines()[0]}")
            return None

    def _outside_allocator(self) -> int | None:
        """Device memory that this process has taken beside the caching allocator's segments."""
        if self._free is None:
            return None
        torch.cuda.synchronize(self._device)
        left = int(torch.cuda.mem_get_info(self._device)[0])
        return max(self._free - left - torch.cuda.memory_reserved(self._device), 0)

    def _requested(self, what: str = "current") -> int:
        return int(torch.cuda.memory_stats(self._device)[f"requested_bytes.all.{what}"])

    def _cublas_workspace(self) -> int:
        matrix = torch.zeros(512, 512, device=self._device)
        before = self._requested()
        product = matrix @ matrix
        return self._requested() - before - product.nbytes

    def _cudnn_workspace(self) -> int:
        images = torch.zeros(8, 64, 56, 56, device=self._device)
        kernel = torch.zeros(64, 64, 3, 3, device=self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        before = self._requested()
        result = functional.conv2d(images, kernel, padding=1)
        return self._requested("peak") - before - result.nbytes

    def _load_kernels(self) -> int:
        """One small step of a model with most of what models have, in three precisions."""
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            model = _model().to(self._device, dtype)
            optimizer = torch.optim.AdamW(model.parameters())
            labels = torch.zeros(4, device=self._device, dtype=torch.long)
            for _ in range(2):
                images = torch.randn(4, 3, 32, 32, device=self._device, dtype=dtype)
                loss: Any = functional.cross_entropy(model(images).float(), labels)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            heads = torch.randn(2, 4, 64, 32, device=self._device, dtype=dtype, requires_grad=True)
            attended: Any = functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
            attended.sum().backward()
        torch.cuda.synchronize(self._device)
        return 0

    def _transfers(self) -> Iterator[Transfer]:
        for name, pinned, to_device in (
            (HOST_TO_DEVICE, True, True),
            ("device to host, pinned", True, False),
            ("host to device, pageable", False, True),
            ("device to host, pageable", False, False),
        ):
            self._progress(f"copying {name}")
            with self._noting(name):
                host = torch.zeros(COPIED, dtype=torch.uint8, pin_memory=pinned)
                there = torch.zeros(COPIED, dtype=torch.uint8, device=self._device)
                pair = (there, host) if to_device else (host, there)
                yield Transfer(name, COPIED, self._rate(COPIED, *pair))
        with self._noting(WITHIN_DEVICE):
            one, other = (torch.zeros(COPIED, dtype=torch.uint8, device=self._device) for _ in range(2))
            # Every byte is read once and written once.
            yield Transfer(WITHIN_DEVICE, COPIED, self._rate(2 * COPIED, one, other))

    @contextlib.contextmanager
    def _noting(self, name: str) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            self._notes.append(f"{name} could not be measured: {str(error).splitlines()[0]}")

    def _rate(self, moved: int, target: torch.Tensor, source: torch.Tensor) -> float:
        """Bytes per second, the best of several copies."""
        seconds = []
        for _ in range(COPIES):
            start, end = _event(), _event()
            start.record()
            target.copy_(source, non_blocking=True)
            end.record()
            torch.cuda.synchronize(self._device)
            seconds.append(float(start.elapsed_time(end)) / 1000)
        return moved / min(seconds)


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _model() -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(2),
        nn.LayerNorm(256),
        nn.Linear(256, 64),
        nn.GELU(),
        nn.Dropout(0.1),
        nn.Flatten(),
        nn.Linear(1024, 10),
        nn.Softmax(dim=-1),
    )
