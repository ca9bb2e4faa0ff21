"""Published runs on several GPUs: which rows run, what formulas say, and how errors are counted."""

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
GIB = 2**30


@pytest.fixture(scope="module")
def module() -> Iterator[Callable[[str], ModuleType]]:
    """Imports a module of the benchmarks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        yield importlib.import_module


@needs_table
def test_every_row_of_several_gpus_is_complete_or_has_a_reason(module: Callable[[str], ModuleType]) -> None:
    table = [row for row in module("published.table").read_table() if row["n_gpus"] not in ("", "1")]
    rows = module("published.sharded.rows").rows()
    assert [row.id for row in rows] == [line["id"] for line in table]
    assert all(bool(row.kind) != bool(row.reason) for row in rows)
    for row, line in zip(rows, table, strict=True):
        # The table has been rounded once more than some figures of litgpt and Megatron-LM.
        assert row.measured / GIB == pytest.approx(float(line["peak_gib"]), abs=5.1e-3)


@needs_table
def test_eager_rows_of_torchtitan_run_and_compiled_ones_do_not(module: Callable[[str], ModuleType]) -> None:
    lines = {row["id"]: row for row in module("published.table").read_table()}
    complete = {row.id for row in module("published.sharded.rows").rows() if row.kind == "FSDP2, eager"}
    shared = {name: line for name, line in lines.items() if "FSDP2" in line["parallelism"]}
    said = {name: line["parallelism"] + line["dtype_scheme"].replace("nocompile", "") for name, line in shared.items()}
    eager = {name for name, words in said.items() if "compile" not in words}
    assert complete == eager
    recipes = module("published.torchtitan.recipes").RECIPES
    assert set(recipes) == complete
    for name, recipe in recipes.items():
        line = lines[name]
        assert (str(recipe.ranks), str(recipe.length)) == (line["n_gpus"], line["seq"])
        assert line["batch"].startswith(f"{recipe.batch}/GPU")
        assert recipe.float8 == ("float8" in line["dtype_scheme"])
        word = {"none": "none", "2": "selective per layer (every 2nd layer)", "full": "full"}[recipe.checkpoint]
        assert line["activation_checkpointing"] == word


def test_llama_has_the_parameters_that_meta_says(module: Callable[[str], ModuleType]) -> None:
    with torch.device("meta"):
        model = module("published.torchtitan.llama").Transformer(16)
    count = sum(parameter.numel() for parameter in model.parameters())
    # Hugging Face's safetensors index of Meta-Llama-3-8B: 16,060,522,496 bytes of bf16.
    assert count == 16_060_522_496 // 2 == module("published.sharded.peers").LLAMA_PARAMETERS


def test_layers_are_checkpointed_from_the_second_on(module: Callable[[str], ModuleType]) -> None:
    recipes, program = module("published.torchtitan.recipes"), module("published.torchtitan.program")
    wrapped = {}
    for word in ("none", "2", "full"):
        holder = torch.nn.Module()
        holder.layers = torch.nn.ModuleDict({str(index): torch.nn.Identity() for index in range(4)})
        program.checkpoint(recipes.Recipe(checkpoint=word), holder)
        wrapped[word] = [type(layer) is not torch.nn.Identity for layer in holder.layers.values()]
    assert wrapped == {"none": [False] * 4, "2": [False, True, False, True], "full": [True] * 4}


def test_megatrons_formula_by_hand(module: Callable[[str], ModuleType]) -> None:
    recipe = module("published.megatron.recipes").Recipe
    formula = module("published.sharded.peers").megatron_formula
    # 12 layers of 512: 3,147,776 parameters each by the formula (no biases), 1,024 in the last norm, 50,304 x 512.
    parameters = 12 * 3_147_776 + 1_024 + 50_304 * 512
    tokens = 4_096
    activations = tokens * 512 * 34 * 12 + 8 * tokens + tokens * 512 + 2 * (tokens * 50_304 + tokens * 512)
    assert formula(recipe(family="gpt", precision="bf16")) == pytest.approx(18 * parameters + 1.05 * activations)
    sharded = formula(recipe(family="gpt", precision="bf16", distributed_optimizer=True))
    assert sharded == pytest.approx(7.5 * parameters + 1.05 * activations)


@pytest.mark.parametrize(
    ("metric", "expandable", "size"),
    [("allocated", None, 90), ("allocated", True, 90), ("reserved", None, 100), ("reserved", True, 95)],
)
def test_a_figure_is_held_against_its_own_counter(
    module: Callable[[str], ModuleType], metric: str, expandable: bool | None, size: int
) -> None:
    records: Any = module("published.sharded.records")
    row = records.Row(
        id="a", source="s", ranks="8", kind="k", metric=metric, measured=80, expandable=expandable
    )  # fmt: skip
    outcome = records.Outcome(row=row, peaks=records.Peaks(allocated=90, reserved=100, expandable=95))
    assert outcome.predicted == size
    assert outcome.error(size) == pytest.approx(100 * (size - 80) / 80)
    assert records.Outcome(row=row).predicted is None
    assert records.Outcome(row=row).error(None) is None
