"""Triton kernels in user code: a launch computes nothing, and what Python allocates around it is what counts."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

from memplan.tracing.recorder import Recorder  # noqa: E402
from memplan.tracing.records import DeviceTraits, Trace  # noqa: E402
from memplan.tracing.semantics import semantics  # noqa: E402
from memplan.tracing.triton_kernels import NOTE, TUNED, idle_kernels  # noqa: E402
from memplan.tracing.values import Values  # noqa: E402
from memplan.tracing.world import fake_world  # noqa: E402
from tests.tracing.jobs import source, trace  # noqa: E402

MIB = 2**20
A100 = DeviceTraits(kind="cuda", capability=(8, 0), sm_count=108)
ROOT = Path(__file__).parents[2]


@triton.jit
def scale(x, y, n, block: tl.constexpr = 64):
    offsets = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(y + offsets, 2 * tl.load(x + offsets, mask=offsets < n), mask=offsets < n)


CONFIGS = [triton.Config({"block": 128}, num_warps=8), triton.Config({"block": 256}, num_warps=4)]


def tuned(**options: Any) -> Any:
    """A kernel that tunes itself: fresh, as a key is tuned once. Some releases of triton ask for a GPU to make one."""

    @triton.autotune(**{"configs": CONFIGS, "key": ["n"], **options})
    @triton.heuristics({"even": lambda arguments: arguments["n"] % arguments["block"] == 0})
    @triton.jit
    def kernel(x, y, n, block: tl.constexpr, even: tl.constexpr):
        tl.store(y, tl.load(x))

    return kernel


@torch.library.triton_op("memplan_tests::double", mutates_args={})
def double(x: torch.Tensor) -> torch.Tensor:
    half = torch.empty(x.numel() // 2, device=x.device)
    y = torch.empty_like(x)
    torch.library.wrap_triton(scale)[(1,)](x, y, half.numel())
    return y


class Run:
    """A recording of device memory, with what the kernels left out and assumed."""

    def __init__(self, recorder: Recorder, noted: Any) -> None:
        self.recorder, self.noted = recorder, noted

    def sizes(self) -> list[int]:
        """Bytes of the device's allocations, in order."""
        return [entry.nbytes for entry in self.recorder.ledger.entries if entry.place == "device"]

    def live(self) -> int:
        return sum(entry.nbytes for entry in self.recorder.ledger.entries if entry.place == "device" and entry.holders)


@contextmanager
def running(device: DeviceTraits = A100) -> Iterator[Run]:
    with ExitStack() as stack:
        stack.enter_context(fake_world())
        means = stack.enter_context(semantics(device, "auto"))
        values = Values()
        recorder = Recorder(device, means.scratch_rules, means.place_rule, values)
        means.ask_host(recorder.references.is_host)
        noted = stack.enter_context(idle_kernels(device, recorder.references.forget, values.assume))
        stack.enter_context(recorder.watching())
        recorder.references.default_place, recorder.recording = "host", True
        yield Run(recorder, noted)


def test_a_launch_takes_no_memory_and_is_named_in_the_report() -> None:
    with running() as run:
        x = torch.randn(1024, device="cuda")
        y = torch.empty_like(x)
        assert not run.noted
        scale[(16,)](x, y, 1024)
        assert run.sizes() == [4096, 4096]
        assert list(run.noted) == [NOTE]


def test_a_grid_is_asked_with_arguments_options_and_defaults() -> None:
    asked: list[dict[str, Any]] = []
    with running():
        x = torch.randn(1024, device="cuda")
        scale[lambda meta: (asked.append(meta), 1)](x, x, 1024)
        scale[lambda meta: (asked.append(meta), 1)](x, x, n=7, block=32, num_warps=2)
    assert [(meta["n"], meta["block"]) for meta in asked] == [(1024, 64), (7, 32)]


def test_heuristics_and_the_first_configuration_reach_the_grid() -> None:
    asked: list[dict[str, Any]] = []
    with running():
        x = torch.randn(1024, device="cuda")
        tuned()[lambda meta: (asked.append(meta), 1)](x, x, 1024)
        tuned()[lambda meta: (asked.append(meta), 1)](x, x, 1000)
    assert [(meta["block"], meta["even"]) for meta in asked] == [(128, True), (128, False)]


def test_tuning_takes_its_buffer_once_for_each_key() -> None:
    with running() as run:
        kernel = tuned()
        x = torch.randn(1024, device="cuda")
        for n in (1024, 1024, 512):
            kernel[(1,)](x, x, n)
        assert run.sizes() == [4096, 256 * MIB, 256 * MIB]
        assert run.live() == 4096
        assert TUNED in run.recorder.values.assumptions
    assert kernel.cache == {}


def test_tuning_copies_what_it_restores() -> None:
    with running() as run:
        kernel = tuned(restore_value=["y"])
        x = torch.randn(1024, device="cuda")
        kernel[(1,)](x, torch.empty(4096, device="cuda"), 1024)
        assert run.sizes() == [4096, 16384, 256 * MIB, 16384]


def test_a_tuned_kernel_holds_no_tensor_when_it_has_run() -> None:
    with running() as run:
        tuned()[(1,)](torch.randn(1024, device="cuda"), torch.empty(1024, device="cuda"), 1024)
        assert run.live() == 0


def test_one_configuration_is_not_tuned() -> None:
    with running() as run:
        x = torch.randn(1024, device="cuda")
        tuned(configs=CONFIGS[:1])[(1,)](x, x, 1024)
        assert run.sizes() == [4096]


@pytest.mark.parametrize("launched", [False, True])
def test_what_was_known_of_a_kernels_arguments_is_forgotten(launched: bool) -> None:
    with running() as run:
        count = torch.zeros((), dtype=torch.long, device="cuda")
        if launched:
            scale[(1,)](count, count, 1)
        assert count.item() == (1 if launched else 0)
        values = run.recorder.values
        # What is taken for granted of a number names its place among the decisions.
        assert bool(values.assumptions or values.decisions.account.said) is launched


def test_the_driver_answers_for_the_gpu_that_is_played() -> None:
    with running(DeviceTraits(kind="cuda", capability=(9, 0), sm_count=132)):
        driver = triton.runtime.driver.active
        target, properties = driver.get_current_target(), driver.utils.get_device_properties(0)
        assert (target.backend, target.arch, target.warp_size) == ("cuda", 90, 32)
        assert properties["multiprocessor_count"] == torch.cuda.get_device_properties(0).multi_processor_count == 132
        assert driver.get_current_stream(driver.get_current_device()) == 0
        assert driver.get_active_torch_device().type == "cuda"
        compiled = scale.warmup(torch.float32, torch.float32, 1024, grid=(1,))
        assert compiled.n_regs > 0


def test_an_operator_made_of_kernels_runs() -> None:
    with running() as run:
        result = double(torch.randn(256, device="cuda"))
        assert result.shape == (256,)
        assert run.sizes() == [1024, 512, 1024]
        assert run.live() == 1024
        assert list(run.noted) == [NOTE]


def test_triton_is_as_before_afterwards() -> None:
    config = sys.modules["triton.runtime.driver"].driver

    def state() -> list[object]:
        runtime = triton.runtime
        return [runtime.JITFunction.run, runtime.Autotuner.run, dict(vars(config)), list(sys.meta_path)]

    before = state()
    with running():
        assert state() != before
    assert state() == before


def test_a_cpu_run_is_left_alone() -> None:
    before = triton.runtime.JITFunction.run
    with running(DeviceTraits(kind="cpu")) as run:
        assert triton.runtime.JITFunction.run is before
        assert not run.noted


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        scale[lambda meta: (triton.cdiv(x.numel(), meta["block"]),)](x, y, x.numel())
        return y

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        with torch.cuda.device(grad.device):
            scale[(1,)](grad, grad, grad.numel(), block=triton.next_power_of_2(grad.shape[-1]))
        return grad


class Doubling(torch.nn.Module):
    """Doubles by a Triton kernel or by torch: one new tensor of the same size either way."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.linear, self.fused = torch.nn.Linear(64, 64), fused

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.linear(x)
        return (Scaled.apply(hidden) if self.fused else hidden * 2).sum()


def steps_of(fused: bool) -> Trace:
    return trace(source(lambda: Doubling(fused), lambda size: torch.randn(size, 64), loss=lambda out, _: out), A100)


def forward_sizes(traced: Trace) -> list[int]:
    """Bytes that forward allocates on the device."""
    births = [event.storage for event in traced.events if event.action == "alloc"]
    storages = [traced.storages[birth] for birth in births]
    return [
        each.nbytes
        for each in storages
        if each.place == "device" and not each.name and traced.ops[each.birth].phase == "forward"
    ]


def test_a_training_step_with_a_kernel_allocates_what_the_same_step_in_torch_does() -> None:
    fused, plain = steps_of(True), steps_of(False)
    assert fused.repeats
    assert forward_sizes(fused) == forward_sizes(plain)
    assert NOTE in fused.not_modelled
    assert NOTE not in plain.not_modelled


TARGET = """
import torch

def model():
    import triton, triton.language as tl

    @triton.jit
    def halve(x):
        tl.store(x, tl.load(x))

    class Model(torch.nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            halve[(1,)](y)
            return y.sum()

    return Model(8, 8)

def batch(batch_size):
    return torch.randn(batch_size, 8)

def loss(output, batch):
    return output
"""


@pytest.mark.slow
def test_a_target_that_imports_triton_itself_is_estimated(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(TARGET)
    done = subprocess.run(
        [sys.executable, "-m", "memplan", "estimate", str(tmp_path / "model.py"), "--gpu", "a100-80g", "--json"],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert NOTE in json.loads(done.stdout)["not_modelled"]


SEEN: list[torch.device] = []


@torch.library.triton_op("memplan_tests::asking", mutates_args={})
def asking(x: torch.Tensor) -> torch.Tensor:
    SEEN.append(x.device)
    y = torch.empty(x.numel(), device=x.device) if x.device.type == "cuda" else torch.empty(1)
    torch.library.wrap_triton(scale)[(1,)](x, y, x.numel())
    return y


def test_the_body_of_an_operator_is_told_the_device() -> None:
    SEEN.clear()
    given = source(lambda: torch.nn.Linear(8, 8), lambda size: torch.randn(size, 8))
    given = replace(given, loss=lambda output, _: output.sum() + asking(output.detach()).sum())
    recorded = trace(given, A100, batch_size=125)
    assert set(SEEN) == {torch.device("cuda", 0)}
    made = [each for each in recorded.storages if each.nbytes == 4000 and each.place == "device"]
    # The layer's output, its gradient and what the operator makes.
    assert len(made) >= 2 * len(recorded.steps)
