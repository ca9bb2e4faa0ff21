"""Activation checkpointing put on a model: which modules, the same gradients, less memory, names kept."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from memplan.errors import UsageError
from memplan.lifetime.build import build_lifetimes
from memplan.lifetime.records import Category
from memplan.runtime.checkpoint.apply import AppliedPlan, apply
from memplan.runtime.checkpoint.host import Returning
from memplan.tracing.checkpointing import apply_checkpointing, described
from memplan.tracing.records import Trace
from tests.tracing.jobs import source, trace
from tests.tracing.real_memory import peak, real_allocations

WIDTH, TOKENS = 16, 64


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(p=0.3))

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        return x + scale * self.mlp(torch.sin(x))


class Stack(nn.Module):
    def __init__(self, depth: int = 4) -> None:
        super().__init__()
        self.embed = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(depth))
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x, scale=0.5)
        return self.head(x)


def mean_square(output: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return output.pow(2).mean()


def _trace(depth: int = 8, **options: str) -> Trace:
    return trace(
        source(lambda: Stack(depth), lambda size: torch.randn(TOKENS * size, WIDTH), loss=mean_square), **options
    )


def _live_activations(found: Trace) -> int:
    """Most bytes of activations alive at once."""
    buffers = build_lifetimes(found).buffers
    live = most = 0
    for event in found.events:
        if buffers[event.storage].category is Category.ACTIVATION:
            live += buffers[event.storage].nbytes * (1 if event.action == "alloc" else -1)
            most = max(most, live)
    return most


def test_peak_activations_drop_to_block_inputs() -> None:
    row = TOKENS * WIDTH * 4
    growth_plain = _live_activations(_trace(8)) - _live_activations(_trace(7))
    growth = _live_activations(_trace(8, checkpoint="full")) - _live_activations(_trace(7, checkpoint="full"))
    # A block saves its input, the sine, the GELU's input and output (4 rows each) and the dropout's mask.
    assert growth_plain >= 10 * row
    assert growth == row + torch.get_rng_state().nbytes


def test_names_in_attribution_stay() -> None:
    plain, checkpointed = _trace(3), _trace(3, checkpoint="full")

    def modules(found: Trace, phase: str) -> set[str]:
        return {op.module for op in found.ops if op.phase == phase and op.module}

    for phase in ("forward", "backward"):
        assert modules(checkpointed, phase) == modules(plain, phase)
    last = checkpointed.steps[-1]
    again = [
        op for op in checkpointed.ops[last.first_op : last.end_op] if op.phase == "backward" and ".gelu." in op.name
    ]
    assert {op.module for op in again} == {f"layers.{index}.mlp.1" for index in range(3)}
    # The sine is the block's own, in its second run as in its first.
    sines = [op for op in checkpointed.ops[last.first_op : last.end_op] if op.name == "aten.sin.default"]
    assert [(op.phase, op.module) for op in sines] == [
        *(("forward", f"layers.{index}") for index in (0, 1, 2)),
        *(("backward", f"layers.{index}") for index in (2, 1, 0)),
    ]


def test_the_report_says_what_is_checkpointed() -> None:
    assert "activation checkpointing of 3 blocks: layers.0 … layers.2" in _trace(3, checkpoint="full").assumptions
    assert not any("checkpointing" in sentence for sentence in _trace(3).assumptions)
    assert not any(
        "checkpointing" in sentence for sentence in _trace(3, checkpoint="full", mode="inference").assumptions
    )


@pytest.mark.parametrize("switch", ["is_activation_checkpointing", "is_gradient_checkpointing"])
def test_a_models_own_checkpointing_is_left_alone(switch: str) -> None:
    model = Stack()
    setattr(model, switch, True)
    before = [module.forward for module in model.modules()]
    assert apply_checkpointing(model, "full") is None
    assert [module.forward for module in model.modules()] == before
    assert described(None) == "activation checkpointing of every block, by the model's own switch"


def names(applied: AppliedPlan | None) -> list[str]:
    assert applied is not None
    return [block.module for block in applied.blocks]


def test_transformers_own_checkpointing_is_seen() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=2, num_attention_heads=2
    )
    model = transformers.LlamaForCausalLM(config)
    assert names(apply_checkpointing(copy.deepcopy(model), "full")) == ["model.layers.0", "model.layers.1"]
    model.activation_checkpointing_enable()
    assert apply_checkpointing(model, "full") is None


def test_single_operations_are_no_blocks() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU())
    with pytest.raises(UsageError, match="no repeated blocks") as error:
        apply_checkpointing(model, "full")
    assert "2 Linear, 2 ReLU" in str(error.value.hint)


def _plan(folder: Path, content: object) -> Path:
    path = folder / "plan.json"
    path.write_text(json.dumps(content))
    return path


def test_a_plan_names_the_modules(tmp_path: Path) -> None:
    plan = _plan(tmp_path, {"modules": ["layers.1", "layers.0.mlp"], "budget": 1})
    applied = apply_checkpointing(Stack(), str(plan))
    assert names(applied) == ["layers.1", "layers.0.mlp"]
    assert described(applied) == "activation checkpointing of 2 blocks: layers.1 … layers.0.mlp"


def test_every_action_is_described(tmp_path: Path) -> None:
    blocks = [
        {"module": "layers.0", "action": "checkpoint"},
        {"module": "layers.1", "action": "selective", "saved": [{"op": "aten.addmm.default", "calls": [0]}]},
        {"module": "layers.2", "action": "offload"},
        {"module": "layers.3", "action": "keep"},
    ]
    plan = _plan(tmp_path, {"blocks": blocks, "segments": [["layers.0", "layers.1"]]})
    assert described(apply_checkpointing(Stack(), str(plan))) == (
        "activation checkpointing of 1 block: layers.0; selective checkpointing of 1 block: layers.1; "
        "offloading of 1 block: layers.2; one segment of 2 blocks: layers.0 … layers.1"
    )


def test_an_error_names_the_option(tmp_path: Path) -> None:
    plan = _plan(tmp_path, {"modules": ["layers.0", "layer.1"]})
    with pytest.raises(UsageError, match=r"no module layer\.1") as error:
        apply_checkpointing(Stack(), str(plan))
    assert error.value.where == f"--checkpoint {plan}"


def test_offloaded_activations_leave_the_device_and_come_back(tmp_path: Path) -> None:
    def growth(plan: str) -> int:
        return _live_activations(_trace(8, checkpoint=plan)) - _live_activations(_trace(7, checkpoint=plan))

    plan = _plan(tmp_path, {"blocks": [{"module": "layers.*", "action": "offload"}]})
    assert growth(str(plan)) == 0 < growth("none")


SAVED = [{"op": "aten.addmm.default", "calls": [0]}]
PLANS: dict[str, dict[str, object]] = {
    "selective": {"blocks": [{"module": "layers.*", "action": "selective", "saved": SAVED}]},
    "segments": {"segments": [["layers.0", "layers.1", "layers.2"], ["layers.0", "layers.1"]]},
    "mixed": {
        "blocks": [
            {"module": "layers.1", "action": "selective", "saved": SAVED},
            {"module": "layers.3", "action": "checkpoint"},
        ],
        "segments": [["layers.0", "layers.1", "layers.2"]],
    },
    "offload": {"blocks": [{"module": "layers.*", "action": "offload"}]},
    "prefetch": {"blocks": [{"module": "layers.*", "action": "offload"}], "prefetch": True},
}


class Elsewhere:
    """A host whose memory torch does not count."""

    def take(self, flat: torch.Tensor) -> Any:
        return flat.numpy().copy()

    def give(self, taken: Any) -> Returning:
        host = torch.from_numpy(taken)
        return Returning(torch.empty_like(host).copy_(host))


@pytest.mark.parametrize("name", PLANS)
def test_the_traced_peak_is_that_of_a_real_run(tmp_path: Path, name: str) -> None:
    plan, rows = _plan(tmp_path, PLANS[name]), 4096
    job = source(Stack, lambda size: torch.randn(rows * size, WIDTH), loss=mean_square, optimizer=_sgd)
    recorded = trace(job, checkpoint=str(plan))
    sizes = [storage.nbytes for storage in recorded.storages]
    predicted = peak([sizes[key] if action == "alloc" else -sizes[key] for action, key, _ in recorded.events])

    def real() -> None:
        model = Stack()
        apply(model, plan, host=Elsewhere(), strict=True)
        optimizer = _sgd(model.parameters())
        for _ in range(2):
            batch = torch.randn(rows, WIDTH)
            output = model(batch)
            loss = mean_square(output, batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    real()  # One-time allocations of the libraries are not the step's.
    # A number of Python's in an op is a tensor of 8 bytes to C++ alone.
    assert predicted == pytest.approx(peak(real_allocations(real)), rel=1e-5)


def _sgd(parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, foreach=False)
