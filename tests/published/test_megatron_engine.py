"""What stands for Transformer Engine keeps for backward what that keeps, and goes the way that it goes."""

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[2]
SEQUENCE, BATCH, WIDE, OUT = 4, 2, 8, 12


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a module of the stand-ins, which takes no work space."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.setattr("published.megatron.engine.gemm.workspace", lambda: None)
    return lambda name: importlib.import_module(f"published.megatron.engine.{name}")


def layer(kind: Any, **options: Any) -> Any:
    """A layer of this rank's part."""
    given: dict[str, Any] = {"sequence_parallel": False, "fuse_wgrad_accumulation": False, "tp_size": 1, "bias": True}
    given |= {"return_bias": False, "parallel_mode": "column", "init_method": torch.nn.init.zeros_} | options
    return kind(in_features=WIDE, out_features=OUT, params_dtype=torch.bfloat16, device="cpu", **given)


def kept(run: Callable[[], Any]) -> tuple[Any, list[tuple[int, ...]]]:
    """A call's result, and shapes of what it saves for backward."""
    shapes: list[tuple[int, ...]] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        shapes.append(tuple(tensor.shape))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        return run(), shapes


def inputs(*shape: int) -> torch.Tensor:
    """Something to compute gradients for."""
    return torch.zeros(shape, dtype=torch.bfloat16, requires_grad=True)


def test_a_linear_keeps_its_input_and_one_after_a_norm_more(module: Callable[[str], ModuleType]) -> None:
    linear, given = module("linear"), inputs(SEQUENCE, BATCH, WIDE)
    made, shapes = kept(lambda: layer(linear.Linear)(given))
    assert (tuple(made.shape), shapes) == ((SEQUENCE, BATCH, OUT), [(SEQUENCE, BATCH, WIDE), (OUT, WIDE)])
    after = layer(linear.LayerNormLinear, normalization="LayerNorm")
    made, shapes = kept(lambda: after(given))
    rows = (SEQUENCE * BATCH,)
    assert shapes == [(SEQUENCE, BATCH, WIDE), (OUT, WIDE), (WIDE,), (SEQUENCE, BATCH, WIDE), rows, rows]
    made.sum().backward()
    assert given.grad is not None
    assert all(parameter.grad is not None for parameter in after.parameters())
    _, shapes = kept(lambda: layer(linear.LayerNormLinear, normalization="RMSNorm")(given))
    assert len(shapes) == 5


def test_a_grouped_linear_keeps_its_input_once(
    module: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    streams: list[int] = []
    monkeypatch.setattr("published.megatron.engine.grouped.workspace", streams.append)
    options = {"bias": False, "params_dtype": torch.bfloat16, "device": "cpu", "init_method": torch.nn.init.zeros_}
    grouped = module("grouped").GroupedLinear(3, WIDE, OUT, fuse_wgrad_accumulation=False, **options)
    given = inputs(6, WIDE)
    made, shapes = kept(lambda: grouped(given, [1, 0, 5]))
    assert tuple(made.shape) == (6, OUT)
    assert shapes == [(1, WIDE), (0, WIDE), (5, WIDE), *[(OUT, WIDE)] * 3]
    assert streams == [0, 1, 2, 3]
    made.sum().backward()
    assert given.grad is not None
    gradients = [parameter.grad for parameter in grouped.parameters()]
    assert [tuple(each.shape) for each in gradients if each is not None] == [(OUT, WIDE)] * 3


def test_sequence_parallel_keeps_this_ranks_part(module: Callable[[str], ModuleType]) -> None:
    linear, options = module("linear"), {"sequence_parallel": True, "tp_size": 2}
    given = inputs(SEQUENCE, BATCH, WIDE)
    made, shapes = kept(lambda: layer(linear.Linear, **options)(given))
    assert (tuple(made.shape), shapes) == ((2 * SEQUENCE, BATCH, OUT // 2), [(SEQUENCE, BATCH, WIDE), (OUT // 2, WIDE)])
    made.sum().backward()
    given = inputs(2 * SEQUENCE, BATCH, WIDE // 2)
    made, shapes = kept(lambda: layer(linear.Linear, parallel_mode="row", **options)(given))
    assert (tuple(made.shape), shapes[0]) == ((SEQUENCE, BATCH, OUT), (2 * SEQUENCE, BATCH, WIDE // 2))
    made.sum().backward()
    assert given.grad is not None


def test_a_bias_that_is_handed_on_is_not_added(module: Callable[[str], ModuleType]) -> None:
    linear = layer(module("linear").Linear, return_bias=True)
    _, bias = linear(inputs(SEQUENCE, BATCH, WIDE))
    assert bias is linear.bias


def test_a_fused_gradient_goes_to_the_main_one(
    module: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[list[int], bool]] = []

    def dummy(shape: list[int], dtype: torch.dtype, zero: bool) -> torch.Tensor:
        asked.append((shape, zero))
        return torch.zeros(shape, dtype=dtype)

    monkeypatch.setattr("published.megatron.engine.gemm.get_dummy_wgrad", dummy)
    linear = layer(module("linear").Linear, fuse_wgrad_accumulation=True)
    linear(inputs(SEQUENCE, BATCH, WIDE)).sum().backward()
    assert linear.weight.grad_added_to_main_grad
    assert asked == [([OUT, WIDE], False)]


@pytest.mark.parametrize(
    ("capability", "repeated", "dropout", "expected"),
    [
        ((8, 0), "0", 0.1, False),
        ((9, 0), "0", 0.1, True),
        ((10, 0), "0", 0.1, False),
        ((10, 0), "0", 0.0, True),
        ((10, 0), "1", 0.1, True),
    ],
)
def test_which_attention_runs(
    module: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch,
    capability: tuple[int, int], repeated: str, dropout: float, *, expected: bool,
) -> None:  # fmt: skip
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setenv("NVTE_ALLOW_NONDETERMINISTIC_ALGO", repeated)
    assert module("attention").DotProductAttention(attention_dropout=dropout).fused is expected


def test_interleaved_queries_keys_and_values_are_told(module: Callable[[str], ModuleType]) -> None:
    packed = module("attention").packed
    mixed = torch.zeros(SEQUENCE, BATCH, 2, 3 * WIDE)
    assert packed(*mixed.split(WIDE, dim=-1))
    assert not packed(mixed[..., :WIDE].clone(), *mixed.split(WIDE, dim=-1)[1:])


def test_a_mask_over_padding_and_what_follows(module: Callable[[str], ModuleType]) -> None:
    full = module("unfused").full_mask
    padding = torch.tensor([[False, False, True]]).view(1, 1, 1, 3)
    with torch.device("cpu"), pytest.MonkeyPatch.context() as patch:
        plain = torch.arange
        patch.setattr(torch, "arange", lambda *given, **kinds: plain(*given, **kinds | {"device": "cpu"}))
        assert full(3, 3, None, causal=True, padding=False).squeeze().tolist() == [
            [False, True, True], [False, False, True], [False, False, False],
        ]  # fmt: skip
        assert full(3, 3, padding, causal=False, padding=True).shape == (1, 1, 3, 3)
