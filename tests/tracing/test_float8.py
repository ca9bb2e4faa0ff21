"""``--float8``: torchao's own layers under the trace, against a real run of them on the CPU."""

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from memplan.errors import UsageError
from memplan.tracing.records import DeviceTraits, Trace
from tests.tracing.jobs import CPU, source, trace
from tests.tracing.real_memory import real_allocations

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torchao: Any = pytest.importorskip("torchao.float8")

CUDA = DeviceTraits(kind="cuda", capability=(9, 0))
RECIPES = ["tensorwise", "rowwise", "rowwise_with_gw_hp"]
WIDTH, HIDDEN, ROWS = 64, 160, 48
ONE_ELEMENT = 16
"""Python numbers in arithmetic become real tensors of one element, which fake tensors do without."""


def net(width: int = WIDTH) -> nn.Module:
    return nn.Sequential(nn.Linear(width, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, width)).to(torch.bfloat16)


def rows(size: int) -> torch.Tensor:
    return torch.randn(size, WIDTH, dtype=torch.bfloat16)


def loss(output: torch.Tensor, _: object) -> torch.Tensor:
    return output.float().sum()


def traced(model: Callable[[], nn.Module] = net, device: DeviceTraits = CPU, **options: Any) -> Trace:
    return trace(source(model, rows, loss=loss), device, optimizer="sgd-momentum", batch_size=ROWS, **options)


def sizes(found: Trace, role: str) -> Counter[int]:
    return Counter(each.nbytes for each in found.storages if each.role == role)


def kept_for_backward(found: Trace) -> Counter[int]:
    """Sizes of what the last step's forward made and left alive."""
    step = found.steps[-1]
    first = next(op.index for op in found.ops[step.first_op :] if op.phase == "backward")
    alive: set[int] = set()
    for event in found.events[step.first_event : step.end_event]:
        if event.op < first and found.storages[event.storage].role != "input":
            (alive.add if event.action == "alloc" else alive.discard)(event.storage)
    return Counter(found.storages[each].nbytes for each in alive if found.storages[each].nbytes > ONE_ELEMENT)


@pytest.mark.parametrize("recipe", RECIPES)
def test_forward_leaves_alive_what_a_real_one_on_the_cpu_does(recipe: Any) -> None:
    # The whole step cannot be compared: the CPU's float8 product casts its operands back in memory of its own.
    model, batch = net(), rows(ROWS)
    torchao.convert_to_float8_training(model, config=torchao.Float8LinearConfig.from_recipe_name(recipe))
    kept: list[torch.Tensor] = []

    def forward() -> None:
        output = model(batch)
        kept.extend([output, loss(output, batch)])

    made = Counter[int]()
    for size in real_allocations(forward):
        made[abs(size)] += 1 if size > 0 else -1
    assert kept_for_backward(traced(float8=recipe)) == +Counter(
        {size: count for size, count in made.items() if size > ONE_ELEMENT}
    )


@pytest.mark.filterwarnings("ignore:torch.get_autocast_gpu_dtype")
@pytest.mark.parametrize("precision", ["bf16", "bf16-mixed"])
def test_on_a_gpu_only_products_change(precision: Any) -> None:
    def model() -> nn.Module:
        return net() if precision == "bf16" else net().float()

    plain = traced(model, CUDA, precision=precision)
    found = traced(model, CUDA, precision=precision, float8="tensorwise")
    assert found.repeats
    for role in ("parameter", "optimizer_state"):
        assert sizes(found, role) == sizes(plain, role)
    step = found.steps[-1]
    products = [op for op in found.ops[step.first_op : step.end_op] if "_scaled_mm" in op.name]
    # One forward, two in backward: but the first layer's input asks for no gradient, and torchao makes it all the same.
    assert len(products) == 3 * 2
    assert not any(op.name == "aten.mm.default" for op in found.ops)


def test_heads_and_odd_sizes_stay_as_they_are() -> None:
    transformers = pytest.importorskip("transformers")
    small = {"vocab_size": 48, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 1}
    config = transformers.LlamaConfig(**small, num_attention_heads=2, num_key_value_heads=2)

    def tokens(size: int) -> dict[str, torch.Tensor]:
        ids = torch.zeros(size, 16, dtype=torch.int64)
        return {"input_ids": ids, "labels": ids}

    found = trace(source(lambda: transformers.LlamaForCausalLM(config), tokens), CUDA, float8="rowwise", batch_size=1)
    # 40 is no multiple of 16, so of seven layers in a block only those of attention remain.
    assert any("multiplies 4 linear layers in float8" in each for each in found.assumptions)


def test_compiled_only_products_that_are_needed_run() -> None:
    pytest.importorskip("triton")
    found = traced(device=CUDA, float8="tensorwise", compile="inductor")
    step = found.steps[-1]
    assert found.repeats
    # The first layer's input asks for no gradient, which Inductor sees.
    assert sum("_scaled_mm" in op.name for op in found.ops[step.first_op : step.end_op]) == 3 * 2 - 1


def test_outside_of_training_it_is_refused() -> None:
    with pytest.raises(UsageError, match="those of training"):
        traced(float8="tensorwise", mode="inference")


def test_a_model_without_fitting_layers_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no linear layer inside the model whose sizes are multiples of 16"):
        traced(lambda: nn.Sequential(nn.Linear(WIDTH, 8), nn.Linear(8, WIDTH)), float8="tensorwise")
