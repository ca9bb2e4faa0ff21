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
def test_all_rows_with_megatrons_own_layers_run_but_bert(module: Callable[[str], ModuleType]) -> None:
    rows = [row for row in module("published.table").read_table() if row["id"].startswith("meg-")]
    cases, excluded = module("published.megatron").cases()
    assert len(cases) + len(excluded) == len(rows)
    own = {row["id"] for row in rows if "local" in row["attention"]}
    assert {case.id for case in cases} == {identity for identity in own if "bert" not in identity}
    assert len(cases) == len(module("published.megatron.recipes").RECIPES)


@needs_table
def test_recipes_say_what_the_rows_do(module: Callable[[str], ModuleType]) -> None:
    rows = {row["id"]: row for row in module("published.table").read_table()}
    for name, recipe in module("published.megatron.recipes").RECIPES.items():
        row = rows[f"meg-{name}-dev_dgx_h100"]
        words = row["parallelism"].replace(";", "").split()
        assert (words[1], words[3]) == (str(recipe.tensor_parallel), str(recipe.pipeline_parallel))
        assert recipe.distributed_optimizer == ("dist-optimizer(ZeRO-1)" in words)
        assert row["dtype_scheme"] == recipe.precision
        assert row["batch"] == "mbs 4 gbs 32"


def test_every_rank_has_its_share_of_the_batch(module: Callable[[str], ModuleType]) -> None:
    recipe = module("published.megatron.recipes").Recipe
    shares = [
        recipe(family="gpt", precision="bf16", tensor_parallel=tensor, pipeline_parallel=pipeline).micro_batches
        for tensor, pipeline in ((1, 1), (1, 2), (4, 1), (4, 2))
    ]
    assert shares == [1, 2, 4, 8]


def test_adam_leaves_two_moments_per_parameter_and_nothing_else(module: Callable[[str], ModuleType]) -> None:
    used, unused = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    used.grad = torch.ones(3)
    optimizer: Any = module("published.megatron.stand_ins").FusedAdam([used, unused], adam_w_mode=True, lr=1.0)
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
