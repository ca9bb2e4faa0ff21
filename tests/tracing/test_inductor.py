"""``--compile inductor``: on the CPU a real ``torch.compile`` is the truth; for CUDA, what fused code must not make."""

import copy
import dataclasses
import importlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import memplan.tracing.inductor as inductor
from memplan.errors import UsageError
from memplan.tracing.compiled import NOTE, UNUSED
from memplan.tracing.inductor.guards import _get, _set
from memplan.tracing.inductor.structure import TensorSlot, described, emptied, filled
from memplan.tracing.records import DeviceTraits, Trace
from tests.tracing.jobs import CPU, source, trace

GPU = DeviceTraits(kind="cuda", capability=(8, 0))
WIDTH, ROWS, FLOAT = 64, 8, 4
SMALL = 16
"""Bytes: the scalars of a real optimizer's loop are not what is compared."""
STATE = torch.get_rng_state().numel()
"""Nor are states of the generator, which compiled code keeps for what it runs again: on a GPU they are 16 bytes."""


class Block(nn.Module):
    """A block of a transformer, with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mixed, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        parts = self.mixed(self.norm(x)).view(batch, length, 3, 4, WIDTH // 4).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*parts.unbind(0), is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return x + functional.dropout(self.narrow(functional.gelu(self.wide(x))), 0.1, self.training)


class Perceptron(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(functional.gelu(self.first(x)))


def rows(size: int) -> torch.Tensor:
    return torch.randn(size, WIDTH)


def sequences(size: int) -> torch.Tensor:
    return torch.randn(size, 32, WIDTH)


def total(output: Any, _: object) -> torch.Tensor:
    return output.pow(2).mean()


def last_step(recorded: Trace) -> list[int]:
    """Signed bytes of what the last step allocates and frees."""
    step = recorded.steps[-1]
    signed = [
        recorded.storages[event.storage].nbytes * (1 if event.action == "alloc" else -1)
        for event in recorded.events[step.first_event : step.end_event]
        if recorded.storages[event.storage].place == "device"
    ]
    return [size for size in signed if abs(size) > SMALL]


def history(recorded: Trace) -> list[tuple[str, int]]:
    return [(event.action, recorded.storages[event.storage].nbytes) for event in recorded.events]


class Stack(nn.Module):
    """Equal blocks, each compiled on its own, or checkpointed inside of one compiled model."""

    def __init__(self, blocks: int, *, each: bool = False, again: bool = False) -> None:
        super().__init__()
        self.blocks, self.again = nn.ModuleList(Block() for _ in range(blocks)), again
        if each:
            for block in self.blocks:
                block.compile()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return x


class Selective(nn.Module):
    """Two blocks that keep every second product of theirs, as torchtitan's ``selective_ac_option = "op"`` does."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False, context_fn=every_second_product)
        return x


def every_second_product() -> Any:
    seen: dict[str, int] = {"products": 0}

    def policy(context: Any, op: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        is_product = op == torch.ops.aten.addmm.default
        seen["products"] += is_product and not context.is_recompute
        keep = is_product and seen["products"] % 2 == 1
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile compiles C++ for the CPU")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "model",
    [
        Block,
        pytest.param(lambda: Stack(2, again=True), marks=pytest.mark.slow),
        pytest.param(Selective, marks=pytest.mark.slow),
    ],
    ids=["plain", "checkpointed", "selective"],
)
def test_a_step_allocates_what_a_real_compiled_one_does(
    model: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    benchmark = importlib.import_module("compile_cpu")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch._dynamo.reset()
    try:
        predicted = trace(source(model, sequences, loss=total), CPU, batch_size=benchmark.BATCH, compile="inductor")
        real = benchmark.settled(model(), sequences, total)
        assert last_step(predicted) == [size for size in real if SMALL < abs(size) != STATE]
    finally:
        torch.set_num_threads(threads)


class Asking(nn.Module):
    """Looks at a number."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        return y if y.sum().item() > 0 else -y


@pytest.mark.parametrize("model", [Perceptron, Asking], ids=["compiled", "not compiled"])
def test_no_batch_outlives_its_step(model: Callable[[], nn.Module]) -> None:
    recorded = trace(source(model, rows, loss=total), GPU, batch_size=ROWS, compile="inductor")
    batches = {index for index, storage in enumerate(recorded.storages) if storage.role == "input"}
    freed = {event.storage for event in recorded.events if event.action == "free"}
    assert len(batches) == len(recorded.steps)
    # The last one lives as long as the loop does.
    assert batches - freed <= {max(batches)}


class Chain(nn.Module):
    """Elementwise ops that one kernel does."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin().cos().exp().tanh()


@pytest.mark.parametrize("device", [GPU, CPU], ids=["cuda", "cpu"])
def test_a_chain_of_elementwise_ops_is_one_buffer(device: DeviceTraits) -> None:
    size = ROWS * WIDTH * FLOAT
    recorded = trace(source(Chain, rows), device, batch_size=ROWS, mode="inference", compile="inductor")
    # The batch and the result; eager code would make four.
    assert [nbytes for nbytes in last_step(recorded) if nbytes > 0] == [size, size]
    assert any(torch.__version__ in sentence for sentence in recorded.assumptions)


def test_each_gpu_is_compiled_for_by_its_own_figures() -> None:
    class Sum(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sum()

    def parts(multiprocessors: int) -> list[int]:
        device = dataclasses.replace(GPU, sm_count=multiprocessors)
        return last_step(trace(source(Sum, rows), device, batch_size=2**15, mode="inference", compile="inductor"))

    # A sum is split over the multiprocessors; what is found in one process must not be another GPU's split.
    few, many = parts(8), parts(132)
    assert few != many
    assert parts(8) == few


def test_what_the_target_compiles_is_compiled_and_nothing_else() -> None:
    @torch.no_grad()
    def outside(x: torch.Tensor) -> torch.Tensor:
        return x.sin().cos()

    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = torch.compile(lambda x: x.sin().cos().tanh(), fullgraph=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inside(outside(x))

    recorded = trace(source(Half, rows), GPU, batch_size=ROWS, mode="inference", compile="inductor")
    names = [op.name for op in recorded.ops]
    assert names.count("aten.sin.default") == names.count("aten.cos.default") == len(recorded.steps)
    assert "aten.tanh.default" not in names


class Holding(nn.Module):
    """Asks for its layers to be compiled: what it is given, or throws it away."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.layers = Perceptron()
        compiled = self.layers if how == "never" else torch.compile(self.layers)
        if how == "in place":
            self.layers.compile()
        if how in {"returned", "copied"}:
            self.layers = copy.deepcopy(compiled) if how == "copied" else compiled

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_what_torch_compile_returns_is_compiled_and_the_module_itself_is_not() -> None:
    def made(how: str, **options: Any) -> list[int]:
        return last_step(trace(source(lambda: Holding(how), rows, loss=total), GPU, batch_size=ROWS, **options))

    module = Perceptron()
    torch.compile(module)
    assert module._compiled_call_impl is None, "so it is in torch"
    eager, compiled = made("never"), made("in place", compile="inductor")
    assert made("thrown away", compile="inductor") == eager != compiled
    assert made("returned", compile="inductor") == made("copied", compile="inductor") == compiled


def test_a_compiled_module_is_the_module_in_all_else() -> None:
    def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
        original = model._orig_mod
        assert type(model) is not type(original)
        assert isinstance(model, Perceptron)
        model.eval()
        model.compile()
        model.first = nn.Linear(WIDTH, 4 * WIDTH)
        assert not original.training
        assert original.first is model.first
        assert list(model.state_dict()) == list(original.state_dict()) == list(Perceptron().state_dict())
        model(batch).sum().backward()
        assert original.second.weight.grad is not None
        optimizer.zero_grad()

    job = source(lambda: torch.compile(Perceptron()), rows, train_step=step)
    assert UNUSED not in trace(job, CPU, batch_size=ROWS, compile="inductor").not_modelled


def test_data_dependent_code_runs_as_eager_code_and_is_named() -> None:
    job = source(Asking, rows, loss=total)
    recorded = trace(job, GPU, batch_size=ROWS, compile="inductor")
    assert history(recorded) == history(trace(job, GPU, batch_size=ROWS))
    assert any("Asking was traced as eager: DataDependent" in sentence for sentence in recorded.not_modelled)


def test_recurrent_layers_are_left_to_eager_code() -> None:
    job = source(lambda: nn.LSTM(WIDTH, WIDTH), sequences, loss=lambda output, _: output[0].sum())
    recorded = trace(job, GPU, batch_size=ROWS, compile="inductor")
    assert history(recorded) == history(trace(job, GPU, batch_size=ROWS))
    assert any("LSTM was traced as eager" in sentence for sentence in recorded.not_modelled)


def test_a_model_that_is_never_called_as_a_whole_is_not_compiled_and_said_so() -> None:
    def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
        model.first(batch).sum().backward()
        optimizer.zero_grad()

    recorded = trace(source(Perceptron, rows, train_step=step), CPU, batch_size=ROWS, compile="inductor")
    assert UNUSED in recorded.not_modelled


def test_a_region_is_compiled_for_so_many_shapes_and_then_left() -> None:
    class Growing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = torch.compile(lambda x: x.sin().cos())

        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            return [self.inside(x[: size + 1]) for size in range(len(x))]

    def left(shapes: int) -> bool:
        job = source(Growing, rows)
        recorded = trace(job, CPU, batch_size=shapes, mode="inference", compile="inductor")
        return any("eager after 8 shapes" in sentence for sentence in recorded.not_modelled)

    assert not left(2)
    assert left(9)


def test_without_triton_there_is_no_code_for_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inductor, "find_spec", lambda _: None)
    job = source(Perceptron, rows, loss=total)
    with pytest.raises(UsageError, match="needs the package triton"):
        trace(job, GPU, batch_size=ROWS, compile="inductor")
    assert trace(job, CPU, batch_size=ROWS, compile="inductor").ops


@dataclasses.dataclass
class Answer:
    """A result as some models give it."""

    loss: torch.Tensor
    parts: dict[str, Any]


class Structured(nn.Module):
    """Tied weights, running statistics, keywords, a nested result with holes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.norm = (
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, WIDTH),
            nn.BatchNorm1d(WIDTH),
        )
        self.second.weight = self.first.weight

    def forward(self, *, x: torch.Tensor, scale: float, mask: torch.Tensor | None = None) -> Answer:
        y = self.norm(self.second(self.first(x)) * scale)
        return Answer(y.sum(), {"y": y, "mask": mask, "pair": (x, y)})


def test_structures_tied_weights_and_statistics_pass_through() -> None:
    seen: list[tuple[Any, torch.Tensor]] = []

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> None:
        answer = model(x=batch, scale=2.0)
        seen.append((answer, batch))
        answer.loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    recorded = trace(source(Structured, rows, train_step=step), GPU, batch_size=ROWS, compile="inductor")
    assert not any("traced as eager" in sentence for sentence in recorded.not_modelled)
    answer, batch = seen[-1]
    assert type(answer) is Answer
    assert answer.parts["mask"] is None
    assert answer.parts["pair"][0] is batch
    assert answer.parts["pair"][1] is answer.parts["y"]
    assert answer.parts["y"].shape == (ROWS, WIDTH)
    # Of the tied weight there is one gradient in each step.
    gradients = [each for each in recorded.storages if each.role == "gradient" and each.nbytes == WIDTH * WIDTH * FLOAT]
    assert len(gradients) <= len(recorded.steps)


@pytest.mark.slow
def test_equal_blocks_are_lowered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    trace(source(Perceptron, rows, loss=total), GPU, compile="inductor")
    lowering = sys.modules["memplan.tracing.inductor.lowering"]
    lowered: list[bool] = []
    original = lowering.compile_fx_inner

    def counted(*args: Any, **options: Any) -> Any:
        lowered.append(bool(options.get("is_backward")))
        return original(*args, **options)

    monkeypatch.setattr(lowering, "compile_fx_inner", counted)
    recorded = trace(
        source(lambda: Stack(4, each=True), sequences, loss=total), GPU, batch_size=ROWS, compile="inductor"
    )
    assert not any("traced as eager" in sentence for sentence in recorded.not_modelled)
    # The first block is one of its own, since its input needs no gradient.
    assert sorted(lowered) == [False, False, True, True]


def test_a_cache_among_the_arguments_keeps_what_the_call_leaves_in_it() -> None:
    class Cache:
        def __init__(self) -> None:
            self.entries: list[torch.Tensor] = []

    class Caching(nn.Module):
        def forward(self, x: torch.Tensor, cache: Cache) -> torch.Tensor:
            cache.entries = [*cache.entries, x * 2]
            return torch.stack(cache.entries).sum(0)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.compile(Caching())

        def forward(self, x: torch.Tensor) -> list[int]:
            cache = Cache()
            first, second = self.inner(x, cache), self.inner(x, cache)
            assert first.shape == second.shape
            lengths.append(len(cache.entries))
            return [first, second]

    lengths: list[int] = []
    recorded = trace(source(Outer, rows), GPU, batch_size=ROWS, mode="inference", compile="inductor")
    assert not any("traced as eager" in sentence for sentence in recorded.not_modelled)
    assert set(lengths) == {2}


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16", "bf16-mixed", "fp16-mixed"])
def test_low_precision_is_compiled_too(precision: str) -> None:
    job = source(Block, sequences, loss=total)
    recorded = trace(job, GPU, batch_size=ROWS, precision=precision, compile="inductor")
    assert not any("traced as eager" in sentence for sentence in recorded.not_modelled)
    assert any("flash_attention" in op.name for op in recorded.ops)
    assert recorded.repeats


@pytest.mark.slow
def test_eager_tracing_imports_no_compiler() -> None:
    code = (
        "import sys, torch\n"
        "from tests.tracing.jobs import source, trace\n"
        "trace(source(lambda: torch.compile(torch.nn.Linear(4, 4)), lambda size: torch.randn(size, 4),"
        " loss=lambda output, batch: output.sum()))\n"
        "print([name for name in ('torch._inductor.compile_fx', 'memplan.tracing.inductor') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_default_is_eager() -> None:
    recorded = trace(source(lambda: torch.compile(Perceptron()), rows, loss=total), CPU, batch_size=ROWS)
    assert NOTE in recorded.not_modelled


LEAVES = st.one_of(st.none(), st.integers(), st.text(), st.builds(torch.zeros, st.integers(1, 3)))
NESTED = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.tuples(inner, inner), st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(NESTED)
def test_what_is_emptied_can_be_filled_again(value: Any) -> None:
    taken: list[torch.Tensor] = []

    def slot(tensor: torch.Tensor) -> TensorSlot:
        taken.append(tensor)
        return TensorSlot(len(taken) - 1)

    empty = emptied(value, slot)
    assert flat(filled(empty, taken)) == flat(value)
    hash(described(empty))


def flat(value: Any) -> list[Any]:
    """Types and leaves in order; tensors by identity."""
    if isinstance(value, dict):
        return [dict, *(part for key, item in value.items() for part in (key, *flat(item)))]
    if isinstance(value, list | tuple):
        return [type(value), *(part for item in value for part in flat(item))]
    return [id(value) if isinstance(value, torch.Tensor) else value]


@st.composite
def indices(draw: st.DrawFn) -> tuple[Any, ...]:
    """Indices of a tensor of shape (4, 3, 5)."""
    sizes = [4, 3, 5]
    items: list[Any] = []
    for size in sizes[: draw(st.integers(0, 3))]:
        if draw(st.booleans()):
            items.append(None)
        items.append(
            draw(
                st.one_of(
                    st.integers(-size, size - 1),
                    st.builds(slice, st.integers(0, size), st.integers(0, size), st.integers(1, 2)),
                    st.just(torch.tensor([0, size - 1])),
                )
            )
        )
    if draw(st.booleans()):
        items.append(Ellipsis)
    return tuple(items)


@given(indices())
def test_indexing_by_way_of_the_dispatcher_is_torchs_own(index: tuple[Any, ...]) -> None:
    tensor = torch.arange(60).reshape(4, 3, 5)
    assert torch.equal(_get(tensor, index), tensor[index])


@given(indices(), st.booleans())
def test_writing_by_way_of_the_dispatcher_is_torchs_own(index: tuple[Any, ...], is_tensor: bool) -> None:
    one, other = (torch.arange(60).reshape(4, 3, 5) for _ in range(2))
    value: Any = torch.tensor(-1) if is_tensor else -1
    _set(one, index, value)
    other[index] = value
    assert torch.equal(one, other)


def test_what_a_mask_picks_is_written_in_place() -> None:
    tensor = torch.arange(6).reshape(2, 3)
    _set(tensor, tensor > 3, 0)
    assert tensor.tolist() == [[0, 1, 2], [3, 0, 0]]


def test_torch_is_as_before() -> None:
    before = torch.compile, nn.Module.compile, torch.Tensor.__getitem__, torch.compiler.is_compiling
    trace(source(Perceptron, rows, loss=total), GPU, batch_size=ROWS, compile="inductor")
    assert before == (torch.compile, nn.Module.compile, torch.Tensor.__getitem__, torch.compiler.is_compiling)
