"""Activation checkpointing put on a model: which modules, the same gradients, less memory, names kept."""

import copy
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from memplan.errors import UsageError
from memplan.lifetime.build import build_lifetimes
from memplan.lifetime.records import Category
from memplan.trace.checkpointing import apply_checkpointing, checkpoint_blocks, checkpoint_modules, described, read_plan
from memplan.trace.records import Trace
from tests.trace.jobs import source, trace

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


def staged() -> nn.Module:
    """A stem, two stages of two blocks each, a head: as residual networks are built."""
    stages = (nn.Sequential(Block(), Block()) for _ in range(2))
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), *stages, nn.Linear(WIDTH, 1))


def by_name() -> nn.Module:
    model = nn.Module()
    model.parts = nn.ModuleDict({"left": Block(), "right": Block(), "other": Stack(3)})
    return model


def encoder() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, 2, batch_first=True), 2)


@pytest.mark.parametrize(
    ("build", "names"),
    [
        (Stack, ["layers.0", "layers.1", "layers.2", "layers.3"]),
        (staged, ["1.0", "1.1", "2.0", "2.1"]),
        (
            by_name,
            ["parts.left", "parts.right", "parts.other.layers.0", "parts.other.layers.1", "parts.other.layers.2"],
        ),
        (encoder, ["layers.0", "layers.1"]),
        (lambda: nn.ModuleList([Stack(2), Stack(2)]), ["0", "1"]),
    ],
)
def test_repeated_blocks_are_found(build: Callable[[], nn.Module], names: list[str]) -> None:
    model = build()
    unwrapped = {name: module.forward for name, module in model.named_modules()}
    assert list(checkpoint_blocks(model)) == names
    changed = [name for name, module in model.named_modules() if module.forward != unwrapped[name]]
    assert changed == names


def test_single_operations_are_no_blocks() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU())
    with pytest.raises(UsageError, match="no repeated blocks") as error:
        checkpoint_blocks(model)
    assert "2 Linear, 2 ReLU" in str(error.value.hint)


@pytest.mark.parametrize("build", [Stack, staged])
def test_gradients_are_bit_equal_with_dropout(build: Callable[[], nn.Module]) -> None:
    torch.manual_seed(1)
    plain = build()
    checkpointed = copy.deepcopy(plain)
    checkpoint_blocks(checkpointed)
    batch = torch.randn(3, WIDTH)
    for model in (plain, checkpointed):
        torch.manual_seed(2)
        model(batch).pow(2).sum().backward()
    for (name, expected), (_, found) in zip(plain.named_parameters(), checkpointed.named_parameters(), strict=True):
        assert torch.equal(expected.grad, found.grad), name


def test_every_block_runs_twice_and_no_other_module() -> None:
    model = Stack(2)
    checkpoint_blocks(model)
    runs: dict[str, int] = defaultdict(int)
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(lambda *_, name=name: runs.__setitem__(name, runs[name] + 1))
    model(torch.randn(3, WIDTH)).sum().backward()
    assert runs["embed"] == runs["head"] == 1
    assert runs["layers.0.mlp.0"] == runs["layers.1.mlp.0"] == 2


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
    assert growth == row


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
    assert described(["layers.4"]) == "activation checkpointing of 1 block: layers.4"


@pytest.mark.parametrize("switch", ["is_activation_checkpointing", "is_gradient_checkpointing"])
def test_a_models_own_checkpointing_is_left_alone(switch: str) -> None:
    model = Stack()
    setattr(model, switch, True)
    before = [module.forward for module in model.modules()]
    assert apply_checkpointing(model, "full") == ()
    assert [module.forward for module in model.modules()] == before


def test_transformers_own_checkpointing_is_seen() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=2, num_attention_heads=2
    )
    model = transformers.LlamaForCausalLM(config)
    assert apply_checkpointing(copy.deepcopy(model), "full") == ("model.layers.0", "model.layers.1")
    model.activation_checkpointing_enable()
    assert apply_checkpointing(model, "full") == ()


def _plan(folder: Path, content: object) -> Path:
    path = folder / "plan.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_plan_names_the_modules(tmp_path: Path) -> None:
    plan = _plan(tmp_path, {"modules": ["layers.1", "layers.0.mlp"], "budget": 1})
    model = Stack()
    unwrapped = {name: module.forward for name, module in model.named_modules()}
    assert apply_checkpointing(model, str(plan)) == ("layers.1", "layers.0.mlp")
    changed = {name for name, module in model.named_modules() if module.forward != unwrapped[name]}
    assert changed == {"layers.1", "layers.0.mlp"}


@pytest.mark.parametrize("content", ["not json", [], {}, {"modules": "layers.0"}, {"modules": []}, {"modules": [1]}])
def test_a_broken_plan_is_a_usage_error(tmp_path: Path, content: object) -> None:
    with pytest.raises(UsageError) as error:
        read_plan(_plan(tmp_path, content))
    assert error.value.where == str(tmp_path / "plan.json")


def test_an_unknown_module_names_its_neighbours() -> None:
    with pytest.raises(UsageError, match=r"no module layer\.1") as error:
        checkpoint_modules(Stack(), ["layers.0", "layer.1"])
    assert "layers.1" in str(error.value.hint)


def test_a_list_of_modules_cannot_be_checkpointed() -> None:
    with pytest.raises(UsageError, match="layers only holds modules") as error:
        checkpoint_modules(Stack(), ["layers"])
    assert "layers.0" in str(error.value.hint)
