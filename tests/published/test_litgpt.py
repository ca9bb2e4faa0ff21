"""litgpt's published peaks: rows are read and sorted, and one of them is run again where its packages are at hand."""

import csv
import importlib
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("MEMPLAN_DATA", ROOT.parent / "shared" / "data"))
TABLE = DATA / "measured" / "measured.csv"
COLUMNS = ("id", "n_gpus", "batch", "seq", "notes", "peak_gib", "dtype_scheme")


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a module of the benchmark."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return lambda name: importlib.import_module(f"published.litgpt{name and '.'}{name}")


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Writes the table that the benchmark reads."""
    monkeypatch.setenv("MEMPLAN_DATA", str(tmp_path))

    def write(**figures: str) -> None:
        (tmp_path / "measured").mkdir()
        with (tmp_path / "measured" / TABLE.name).open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            for identity, notes in figures.items():
                writer.writerow(dict.fromkeys(COLUMNS, "") | {"id": identity.replace("_", "-"), "notes": notes})

    return write


def test_without_data_there_are_no_cases(
    module: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMPLAN_DATA", str(tmp_path))
    assert module("").cases() == ([], [])


def test_rows_become_cases_or_reasons(module: Callable[[str], ModuleType], table: Callable[..., None]) -> None:
    table(
        litgpt_rt_121="reported 3.78 GB = max_memory_allocated",
        litgpt_hub_195="config x; reported 8.70 GB (/1e9)",
        litgpt_hub_999="reported 1.00 GB",
        axolotl_1="reported 5.00 GB",
    )
    cases, excluded = module("").cases()
    assert [(case.id, case.measured, case.workload, case.metric) for case in cases] == [
        ("litgpt-rt-121", 3_780_000_000, "qlora", "allocated")
    ]
    assert [each.id for each in excluded] == ["litgpt-hub-195", "litgpt-hub-999"]
    assert all(each.reason for each in excluded)


def test_a_missing_folder_of_packages_is_named(
    module: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MEMPLAN_LITGPT", raising=False)
    with pytest.raises(RuntimeError, match="MEMPLAN_LITGPT"):
        module("rows").predict(module("recipes").RECIPES["litgpt-rt-121"])


@pytest.mark.skipif(not TABLE.exists(), reason="no measured data")
def test_recipes_agree_with_what_the_rows_say(module: Callable[[str], ModuleType]) -> None:
    recipes = module("recipes")
    with TABLE.open(encoding="utf-8") as file:
        rows = {row["id"]: row for row in csv.DictReader(file) if row["id"].startswith("litgpt-")}
    assert rows.keys() == recipes.RECIPES.keys() | recipes.EXCLUDED.keys()
    assert not recipes.RECIPES.keys() & recipes.EXCLUDED.keys()
    for identity, recipe in recipes.RECIPES.items():
        row = rows[identity]
        assert row["dtype_scheme"].partition("bnb.")[2] == recipe.quantize, identity
        assert int(row["batch"]) == recipe.micro_batch, identity
        if recipe.method != "generate":
            assert int(row["seq"]) == recipe.length, identity


@pytest.mark.skipif(not TABLE.exists(), reason="no measured data")
def test_figures_are_those_of_the_table(module: Callable[[str], ModuleType]) -> None:
    with TABLE.open(encoding="utf-8") as file:
        gib = {row["id"]: float(row["peak_gib"]) for row in csv.DictReader(file)}
    cases, _ = module("").cases()
    # The table's GiB have three decimals, the reported figures two of a GB.
    assert all(abs(case.measured / 2**30 - gib[case.id]) < 0.001 for case in cases)


@pytest.mark.slow
@pytest.mark.skipif(not TABLE.exists() or "MEMPLAN_LITGPT" not in os.environ, reason="no data or no packages")
@pytest.mark.parametrize("identity", ["litgpt-rt-121", "litgpt-hub-215"])
def test_a_row_is_reproduced(module: Callable[[str], ModuleType], identity: str) -> None:
    (case,) = [case for case in module("").cases()[0] if case.id == identity]
    assert case.predict().allocated == pytest.approx(case.measured, rel=0.002)
