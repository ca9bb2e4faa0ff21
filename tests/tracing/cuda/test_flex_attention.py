"""``flex_attention`` under CUDA semantics: what its compiled kernels allocate, by their source, and no scores."""

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention import flex_attention as flex

from memplan.tracing.records import DeviceTraits, Trace
from tests.tracing.jobs import source, trace

CUDA = DeviceTraits(kind="cuda", capability=(9, 0))
BATCH, HEADS, ROWS, SIZE = 2, 4, 256, 16
WINDOW = 32
HALF, FLOAT = 2, 4
OUTPUT = BATCH * HEADS * ROWS * SIZE * HALF
SUMS = BATCH * HEADS * ROWS * FLOAT
ROW_RESULTS = 2 if hasattr(flex, "AuxOutput") else 1
"""Logarithms of sums, and since torch 2.9 maxima."""


def sliding(_batch: Any, _head: Any, query: Any, key: Any) -> Any:
    return (query >= key) & (query - key < WINDOW)


class Attention(nn.Module):
    """Queries from the input, keys and values of fewer heads, as many models have them."""

    def __init__(self, key_heads: int, attend: Callable[..., torch.Tensor], *, masked: bool) -> None:
        super().__init__()
        self.key_heads, self.attend = key_heads, attend
        self.inner = nn.Linear(SIZE, (HEADS + 2 * key_heads) * SIZE)
        self.mask = flex.create_block_mask(sliding, None, None, ROWS, ROWS, device="cuda") if masked else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.inner(x).view(BATCH, ROWS, -1, SIZE).transpose(1, 2)
        query, key, value = heads.split([HEADS, self.key_heads, self.key_heads], dim=1)
        found = self.attend(query, key, value, block_mask=self.mask, enable_gqa=self.key_heads < HEADS)
        return found.float().sum()


def traced(key_heads: int = HEADS, attend: Any = flex.flex_attention, *, masked: bool = True, **options: Any) -> Trace:
    given = source(lambda: Attention(key_heads, attend, masked=masked), lambda size: torch.zeros(size, ROWS, SIZE))
    return trace(given, CUDA, batch_size=BATCH, precision="bf16", **options)


def made(found: Trace, phase: str) -> Counter[int]:
    """Sizes of what kernels were given room for in a phase of the last step."""
    step = found.steps[-1]
    ops = [op for op in found.ops[step.first_op : step.end_op] if op.phase == phase and "new_empty" in op.name]
    return Counter(found.storages[each].nbytes for op in ops for each in op.writes)


@pytest.mark.parametrize("key_heads", [HEADS, 1])
def test_kernels_make_rows_and_no_scores(key_heads: int) -> None:
    found = traced(key_heads)
    assert made(found, "forward") == Counter({OUTPUT: 1, SUMS: ROW_RESULTS})
    of_key = OUTPUT * key_heads // HEADS
    assert made(found, "backward") == Counter({SUMS: 1}) + Counter([OUTPUT, of_key, of_key])
    scores = BATCH * HEADS * ROWS * ROWS * HALF
    step = found.steps[-1]
    assert all(
        found.storages[event.storage].nbytes < scores
        for event in found.events[step.first_event : step.end_event]
        if found.storages[event.storage].role == "intermediate"
    )
    assert found.repeats
    assert any("keeps no scores" in each for each in found.assumptions)


def test_backward_waits_for_the_output_and_its_sums_alone() -> None:
    found = traced()
    step = found.steps[-1]
    first = next(op.index for op in found.ops[step.first_op :] if op.phase == "backward")
    alive: Counter[int] = Counter()
    for event in found.events[step.first_event : step.end_event]:
        if event.op < first:
            alive[found.storages[event.storage].nbytes] += 1 if event.action == "alloc" else -1
    # The maxima, of the same size as the sums, are gone.
    assert alive[SUMS] == 1
    assert alive[OUTPUT] == 1


def test_whether_a_program_compiles_it_makes_no_difference() -> None:
    def compiled(*args: Any, **options: Any) -> Any:
        return torch.compile(flex.flex_attention)(*args, **options)

    assert [op.name for op in traced(attend=compiled).ops] == [op.name for op in traced().ops]


def test_a_mask_is_made_for_real_and_optional() -> None:
    assert made(traced(masked=False), "forward") == made(traced(), "forward")


def test_inference_makes_the_same_rows() -> None:
    assert made(traced(mode="inference"), "forward") == Counter({OUTPUT: 1, SUMS: ROW_RESULTS})


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3)])
def test_the_output_lies_as_torch_s_own(order: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG"):
        pytest.skip("this torch compiles whatever it is told")
    monkeypatch.setattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    strides: list[tuple[int, ...]] = []

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **_: Any) -> torch.Tensor:
        query = query.permute(order).contiguous().permute(order)
        found: Any = flex.flex_attention(query, key, value)
        strides.append(found.stride())
        return found

    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        Attention(HEADS, attend, masked=False)(torch.zeros(BATCH, ROWS, SIZE))
    traced(attend=attend, masked=False)
    assert len(set(strides)) == 1
