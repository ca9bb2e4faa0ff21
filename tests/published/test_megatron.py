"""Megatron-LM's goldens: which rows run, and that what stands in for GPUs and other ranks leaves what they would."""

import importlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("MEMPLAN_DATA", ROOT.parent / "shared" / "data"))
needs_table = pytest.mark.skipif(not (DATA / "measured" / "measured.csv").exists(), reason="no measured data")


@pytest.fixture(scope="module")
def module() -> Iterator[Callable[[str], ModuleType]]:
    """Imports a module of the benchmarks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        yield importlib.import_module


@needs_table
def test_all_rows_run_but_those_that_words_of_theirs_exclude(module: Callable[[str], ModuleType]) -> None:
    rows = [row for row in module("published.table").read_table() if row["id"].startswith("meg-")]
    cases, excluded = module("published.megatron").cases()
    assert len(cases) + len(excluded) == len(rows)
    assert len(cases) == len(module("published.megatron.rows").RECIPES)
    own = {row["id"] for row in rows if "local" in row["attention"] and "bert" not in row["id"]}
    assert own < {case.id for case in cases}
    packed = [each.id for each in excluded if each.reason == module("published.megatron.exclusions").PACKED]
    assert packed == ["meg-t5-t5_11b_mcore_tp4_pp1-dev_dgx_a100"]


@needs_table
def test_recipes_say_what_the_rows_do(module: Callable[[str], ModuleType]) -> None:
    rows = {row["id"]: row for row in module("published.table").read_table()}
    for name, recipe in module("published.megatron.rows").RECIPES.items():
        row = rows.get(f"meg-{name}-dev_dgx_h100") or rows[f"meg-{name}"]
        words = row["parallelism"].replace(";", "").split()
        said = {word: words[index + 1] for index, word in enumerate(words) if word in {"TP", "PP", "CP", "EP"}}
        parallel = recipe.tensor_parallel, recipe.pipeline_parallel, recipe.context_parallel, recipe.expert_parallel
        assert tuple(said.values()) == tuple(str(size) for size in parallel)
        experts = {"experts": recipe.options.get("num_moe_experts"), "topk": recipe.options.get("moe_router_topk")}
        assert all((f"{word}={size}" in row["model"]) == (size is not None) for word, size in experts.items())
        assert ("layers/stage" in words) == (recipe.chunks > 1)
        assert recipe.distributed_optimizer == ("dist-optimizer(ZeRO-1)" in words)
        assert recipe.options.get("sequence_parallel", False) == ("SP" in words)
        assert row["dtype_scheme"] == recipe.precision
        assert row["batch"] == f"mbs {recipe.size.micro_batch} gbs {recipe.size.global_batch}"
        attention = {"unfused": "unfused", "flash": "flash"}.get(recipe.attention)
        assert row["attention"] == (attention or ("transformer_engine default" if recipe.engine else "local default"))


def test_every_rank_has_its_share_of_the_batch(module: Callable[[str], ModuleType]) -> None:
    recipe = module("published.megatron.recipes").Recipe
    shares = [
        recipe(tensor_parallel=tensor, pipeline_parallel=pipeline).micro_batches
        for tensor, pipeline in ((1, 1), (1, 2), (4, 1), (4, 2))
    ]
    assert shares == [1, 2, 4, 8]


def test_adam_leaves_two_moments_per_parameter_and_nothing_else(module: Callable[[str], ModuleType]) -> None:
    used, unused = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    used.grad = torch.ones(3)
    optimizer: Any = module("published.megatron.engine.optimizers").FusedAdam([used, unused], adam_w_mode=True, lr=1.0)
    optimizer.step()
    moments = optimizer.state[used]
    optimizer.step()
    assert optimizer.state[used] is moments
    assert [tuple(each.shape) for each in moments.values()] == [(3,), (3,)]
    assert not optimizer.state[unused]


@needs_table
@pytest.mark.skipif("MEMPLAN_MEGATRON" not in os.environ, reason="needs MEMPLAN_MEGATRON")
def test_one_row(module: Callable[[str], ModuleType]) -> None:
    case = next(case for case in module("published.megatron").cases()[0] if "tp1_pp4" in case.id)
    assert case.predict().allocated == pytest.approx(case.measured, rel=0.001)
