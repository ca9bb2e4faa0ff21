"""What ``tensor.device`` says in a CUDA trace, and that what it says can be handed back."""

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from memplan.hardware.catalog import load_profile
from memplan.tracing.records import DeviceTraits, Trace
from memplan.versions import at_least
from tests.tracing.jobs import source, trace

GPU = DeviceTraits(kind="cuda", capability=(9, 0), sm_count=132)
AMD = DeviceTraits.of(load_profile("mi300x"))
CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")

Ask = Callable[[torch.nn.Module, torch.Tensor], object]


class Asking(torch.nn.Module):
    """A layer that asks something in every forward and keeps the answers."""

    def __init__(self, ask: Ask) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.register_buffer("scale", torch.ones(4))
        self.made_on = self.layer.weight.device
        self.answers: list[object] = []
        self._ask = ask

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.answers.append(self._ask(self, x))
        return (self.layer(x) * self.scale).sum()


def asked(ask: Ask, device: DeviceTraits = GPU, **options: Any) -> tuple[list[object], Trace]:
    models: list[Asking] = []

    def model() -> Asking:
        models.append(Asking(ask))
        return models[-1]

    given = source(model, lambda size: torch.randn(size, 4), loss=lambda output, _: output)
    recorded = trace(given, device, batch_size=2, **options)
    return models[-1].answers, recorded


ON_DEVICE: dict[str, Ask] = {
    "input": lambda model, x: x.device,
    "parameter": lambda model, x: next(model.parameters()).device,
    "buffer": lambda model, x: model.scale.device,
    "result": lambda model, x: model.layer(x).device,
    "view": lambda model, x: x.t()[0].device,
    "data": lambda model, x: model.layer.weight.data.device,
    "copy": lambda model, x: copy.deepcopy(model.layer).weight.device,
    "like": lambda model, x: torch.zeros_like(x).device,
    "new": lambda model, x: x.new_zeros(3).device,
    "sparse": lambda model, x: x.detach().to_sparse().device,
    "moved": lambda model, x: torch.arange(3).to(x.device).device,
    "made": lambda model, x: torch.arange(3, device=x.device).device,
    "module": lambda model, x: torch.nn.Linear(2, 2, device=x.device).weight.device,
    "moved module": lambda model, x: torch.nn.Linear(2, 2).to(x.device).weight.device,
    "in vmap": lambda model, x: told_inside(torch.vmap, x),
    "in grad": lambda model, x: told_inside(lambda f: torch.func.grad(lambda row: f(row).sum()), x),
}
ON_HOST: dict[str, Ask] = {
    "copy": lambda model, x: x.cpu().device,
    "asked for": lambda model, x: x.to("cpu").device,
    "factory": lambda model, x: torch.arange(3).device,
    "where another is": lambda model, x: torch.ones(3, device=torch.arange(3).device).device,
    "moved where another is": lambda model, x: x.to(torch.arange(3).device).device,
    "while built": lambda model, x: model.made_on,
}


def told_inside(transform: Callable[..., Any], x: torch.Tensor) -> torch.device:
    told: list[torch.device] = []

    def row(each: torch.Tensor) -> torch.Tensor:
        told.append(each.device)
        return each * 2

    transform(row)(x.detach())
    return told[0]


@pytest.mark.parametrize("ask", ON_DEVICE.values(), ids=ON_DEVICE)
def test_what_lies_on_the_device_says_so(ask: Ask) -> None:
    assert set(asked(ask)[0]) == {CUDA}


@pytest.mark.parametrize("ask", ON_HOST.values(), ids=ON_HOST)
def test_what_lies_on_the_host_says_so(ask: Ask) -> None:
    assert set(asked(ask)[0]) == {CPU}


@pytest.mark.parametrize("ask", [*ON_DEVICE.values(), *ON_HOST.values()])
def test_on_the_cpu_all_is_cpu(ask: Ask) -> None:
    assert set(asked(ask, DeviceTraits(kind="cpu"))[0]) == {CPU}


def test_all_ways_of_asking_agree() -> None:
    def ask(_: torch.nn.Module, x: torch.Tensor) -> object:
        host = torch.ones(2)
        return tuple(
            (t.device.type, t.device.index, str(t.device), t.is_cuda, t.is_cpu, t.get_device()) for t in (x, host)
        )

    device, host = ("cuda", 0, "cuda:0", True, False, 0), ("cpu", None, "cpu", False, True, -1)
    assert set(asked(ask)[0]) == {(device, host)}


def test_meta_stays_meta() -> None:
    assert set(asked(lambda *_: torch.empty(2, device="meta").device)[0]) == {torch.device("meta")}


def test_a_branch_on_the_device_takes_cudas_side() -> None:
    def ask(_: torch.nn.Module, x: torch.Tensor) -> object:
        if x.device.type == "cuda":
            return torch.cuda.get_device_properties(x.device).multi_processor_count
        return 1

    assert set(asked(ask)[0]) == {GPU.sm_count}


def test_an_amd_card_says_what_rocm_says() -> None:
    """As ``torch.cuda.get_device_properties`` was printed on one (github.com/pytorch/ao/pull/2853)."""

    def ask(*_: object) -> object:
        told = torch.cuda.get_device_properties(0)
        build = bool(torch.version.hip), torch.version.cuda, torch.cuda.get_device_capability()
        return *build, told.name, told.major, told.minor, told.gcnArchName, told.multi_processor_count

    printed = "AMD Instinct MI300X", 9, 4, "gfx942:sramecc+:xnack-", 304
    assert set(asked(ask, AMD)[0]) == {(True, None, (9, 4), *printed)}
    assert torch.version.hip is None


@pytest.mark.parametrize(
    ("release", "cuda"), [("2.6.0", "12.4"), ("2.9.1+cpu", "12.8"), ("2.13.0+cpu", "13.0"), ("2.10.0+cu126", "12.6")]
)
def test_an_nvidia_card_has_the_cuda_of_its_release(release: str, cuda: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch's own packages have it: the nvidia packages that each asks for on PyPI, or the name of the build."""
    monkeypatch.setenv("MEMPLAN_TORCH_RELEASE", release)
    monkeypatch.setattr("torch.version.cuda", None)
    assert set(asked(lambda *_: (torch.version.cuda, torch.version.hip))[0]) == {(cuda, None)}


@pytest.mark.parametrize(("release", "rocm"), [("2.6.0", "6.2"), ("2.9.0.dev20250811+rocm6.4", "6.4")])
def test_an_amd_card_has_the_rocm_of_its_release(release: str, rocm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMPLAN_TORCH_RELEASE", release)
    assert set(asked(lambda *_: torch.version.hip, AMD)[0]) == {rocm}


def test_kernels_of_amd_cards_are_taken_to_be_those_of_an_a100() -> None:
    amd, a100 = (DeviceTraits.of(load_profile(name)) for name in ("mi300x", "a100-80g"))
    assert (amd.capability, a100.rocm) == (a100.capability, None)


def inside(context: Callable[[torch.device], AbstractContextManager[object]]) -> Ask:
    def ask(_: torch.nn.Module, x: torch.Tensor) -> object:
        with context(x.device):
            return (x @ x.t()).dtype

    return ask


HANDED_BACK: dict[str, Ask] = {
    "autocast": inside(lambda device: torch.autocast(device.type, torch.bfloat16)),
    "rng": inside(lambda device: torch.random.fork_rng([device.index])),
    "current": inside(lambda device: torch.cuda.device(device)),  # noqa: PLW0108 - A trace replaces it later.
    "default": inside(lambda device: device),
    "set": lambda model, x: torch.cuda.set_device(x.device),
    "generator": lambda model, x: torch.randn(2, device=x.device, generator=torch.Generator(device=x.device)).shape,
    "module": lambda model, x: torch.get_device_module(x.device),
    "as_tensor": lambda model, x: torch.as_tensor([1.0], device=x.device).shape,
}


@pytest.mark.parametrize("ask", HANDED_BACK.values(), ids=HANDED_BACK)
def test_torch_takes_the_device_back(ask: Ask) -> None:
    answers, recorded = asked(ask)
    assert len(answers) == len(recorded.steps)


def test_autocast_of_a_tensors_device_is_cudas() -> None:
    assert set(asked(HANDED_BACK["autocast"])[0]) == {torch.bfloat16}


@pytest.mark.parametrize("make", [lambda x: torch.ones(1000, device=x.device), lambda x: torch.ones(1000).to(x.device)])
def test_what_is_made_there_counts(make: Callable[[torch.Tensor], torch.Tensor]) -> None:
    _, recorded = asked(lambda _, x: make(x).shape)
    assert [each.nbytes for each in recorded.storages if each.place == "device"].count(4000) == len(recorded.steps)


def test_what_is_made_beside_a_host_tensor_does_not_count() -> None:
    _, recorded = asked(lambda *_: torch.ones(1000, device=torch.arange(3).device).shape)
    assert {each.place for each in recorded.storages if each.nbytes == 4000} == {"host"}


def test_backward_is_told_as_forward_is() -> None:
    told: list[torch.device] = []

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            told.append(x.device)
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            told.extend((gradient.device, ctx.saved_tensors[0].device))
            return gradient * torch.full((), 2.0, device=gradient.device)

    def block(x: torch.Tensor) -> torch.Tensor:
        told.append(x.device)
        return x.exp()

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = Doubled.apply(self.layer(x))
            y.register_hook(lambda gradient: told.append(gradient.device))
            for reentrant in (False, True):
                y = checkpoint(block, y, use_reentrant=reentrant)
            return y.sum()

    trace(source(Model, lambda size: torch.randn(size, 4), loss=lambda output, _: output), GPU, batch_size=2)
    # Two steps: one forward and two answers in backward, a hook, and two blocks that run twice.
    assert told == [CUDA] * 2 * (1 + 2 + 1 + 4)


@pytest.mark.parametrize("impl", ["foreach", "fused", "loop"])
def test_scaled_and_clipped_steps_move_nothing_to_the_host(impl: str) -> None:
    """Their Python looks devices up in tables, and moves scalars to where the table says."""
    _, recorded = asked(
        lambda *_: None, precision="fp16-mixed", clip_grad_norm=1.0, optimizer="adamw", optimizer_impl=impl
    )
    host = {each.id for each in recorded.storages if each.place == "host"}
    moves = [op for op in recorded.ops if op.phase == "optimizer" and op.name == "aten._to_copy.default"]
    assert moves
    assert not [op for op in moves if host & {*op.reads, *op.writes}]


def test_packed_sequences_keep_their_batch_sizes_on_the_host() -> None:
    told: list[torch.device] = []

    class Packed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = torch.nn.LSTM(4, 4, batch_first=True)

        def forward(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
            packed = torch.nn.utils.rnn.pack_padded_sequence(batch[0], batch[1].cpu(), True, enforce_sorted=False)
            told.extend((packed.data.device, packed.batch_sizes.device))
            return self.rnn(packed)[0].data.sum()

    def batch(size: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(size, 3, 4), torch.tensor([3, 1])

    model = source(lambda: Sole(Packed()), lambda size: {"batch": batch(size)}, loss=lambda output, _: output)
    trace(model, GPU, batch_size=2)
    assert told == [CUDA, CPU] * 2


class Sole(torch.nn.Module):
    """Hands on a batch as one argument."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, batch: Any) -> torch.Tensor:
        result: torch.Tensor = self.inner(batch)
        return result


def test_histograms_of_integers_are_counted() -> None:
    """Routers of mixtures of experts take them on a GPU alone."""
    answers, _ = asked(lambda *_: torch.histc(torch.arange(8, device="cuda").int(), bins=4, min=0, max=7).dtype)
    assert set(answers) == {torch.int32}


def test_a_compiled_region_is_told_as_eager_code_is() -> None:
    pytest.importorskip("triton")
    told: list[str] = []

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            told.append(x.device.type)
            bias = torch.ones(8, device=x.device)
            return (self.layer(x) + bias).relu().sum()

    given = source(lambda: torch.compile(Model()), lambda size: torch.randn(size, 8), loss=lambda output, _: output)
    recorded = trace(given, GPU, batch_size=2, compile="inductor")
    assert set(told) == {"cuda"}
    assert not [sentence for sentence in recorded.assumptions if "traced as eager" in sentence]


@pytest.mark.skipif(not at_least(torch.__version__, "2.7"), reason="torch 2.6 does not fuse them for AMD's cards")
@pytest.mark.parametrize(
    ("card", "dtype"), [(AMD, torch.float8_e4m3fnuz), (GPU, torch.float8_e4m3fn)], ids=["amd", "h"]
)
def test_compiled_casts_to_float8_are_fused(card: DeviceTraits, dtype: torch.dtype) -> None:
    """An MI300X has types of its own, which Inductor's kernels read and write there alone."""
    pytest.importorskip("triton")

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(64, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (self.layer(x).relu() + 1).to(dtype).float().exp().sum()

    given = source(lambda: torch.compile(Model()), lambda size: torch.randn(size, 64), loss=lambda output, _: output)
    recorded = trace(given, card, batch_size=512, compile="inductor", mode="inference")
    assert not [sentence for sentence in recorded.assumptions if "traced as eager" in sentence]
    assert not [each for each in recorded.storages if each.nbytes == 512 * 64 and each.role != "scratch"]
