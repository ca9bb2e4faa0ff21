"""The accuracy benchmark: every published row is accounted for, no row costs another, and the tables count rightly."""

import csv
import importlib
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("MEMPLAN_DATA", ROOT.parent / "shared" / "data"))
TABLE = DATA / "measured" / "measured.csv"
needs_table = pytest.mark.skipif(not TABLE.exists(), reason="no measured data")


@pytest.fixture(scope="module")
def module() -> Iterator[Callable[[str], ModuleType]]:
    """Imports a module of the benchmarks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        yield importlib.import_module


@pytest.fixture
def make_case(module: Callable[[str], ModuleType]) -> Callable[..., Any]:
    """Makes cases whose prediction is given."""
    case = module("published.case")

    def make(identity: str, predict: Callable[[], Any] | int, measured: int = 1000, resolution: int = 5) -> Any:
        def say() -> Any:
            if callable(predict):
                return predict()
            return case.Prediction(requested=predict - 2, allocated=predict, reserved=predict + 2)

        return case.Case(
            id=identity, source="s", workload="full", metric="allocated", measured=measured, resolution=resolution,
            predict=say,
        )  # fmt: skip

    return make


def fail() -> None:
    raise ValueError("line one\nline two")


@needs_table
def test_every_row_of_the_table_is_a_case_or_excluded_once(module: Callable[[str], ModuleType]) -> None:
    accuracy = module("accuracy")
    cases, excluded, broken = accuracy.gather(accuracy.SOURCES)
    assert broken == []
    ids = Counter(each.id for each in (*cases, *excluded))
    assert ids.total() == len(ids)
    with TABLE.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 494
    found = module("published.table").accounted(set(ids), rows)
    assert [row["id"] for row in rows if row["id"] not in found] == []
    assert len(set(found.values())) == len(rows)
    assert all(each.reason for each in excluded)


@needs_table
def test_figures_agree_with_the_table(module: Callable[[str], ModuleType]) -> None:
    accuracy, table = module("accuracy"), module("published.table")
    cases = {case.id: case for case in accuracy.gather(("snapshots", "litgpt", "fitcheck", "torchtune", "megatron"))[0]}
    rows = [row for row in table.read_table() if row["id"] in cases]
    assert len(rows) > 60
    for row in rows:
        measured, resolution = table.figure(row)
        assert abs(cases[row["id"]].measured - measured) <= resolution, row["id"]


def test_a_row_that_no_rule_speaks_of_is_an_error(module: Callable[[str], ModuleType]) -> None:
    row = {"id": "x", "source": "s", "metric": "allocated", "n_gpus": "1", "seq": "8", "dtype_scheme": "bf16"}
    with pytest.raises(LookupError, match="x"):
        module("published.others").reason(row | {"parallelism": "none"})


def test_a_failing_row_costs_no_other_and_is_tried_again(
    module: Callable[[str], ModuleType], make_case: Callable[..., Any], tmp_path: Path
) -> None:
    accuracy, path = module("accuracy"), tmp_path / "rows.csv"
    done = accuracy.run([make_case("a", fail), make_case("b", 1004)], path, resume=False)
    assert done["a"].failure == "ValueError: line one line two"
    assert (done["b"].error_percent, done["b"].within_resolution, done["b"].predicted) == (0.4, True, 1004)
    assert accuracy.records.read(path) == done
    again = accuracy.run([make_case("a", 1010), make_case("b", fail)], path, resume=True)
    assert (again["a"].failed, again["a"].within_resolution) == (False, False)
    assert again["b"] == done["b"]


def test_an_interrupted_run_keeps_what_it_has(
    module: Callable[[str], ModuleType], make_case: Callable[..., Any], tmp_path: Path
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    accuracy, path = module("accuracy"), tmp_path / "rows.csv"
    with pytest.raises(KeyboardInterrupt):
        accuracy.run([make_case("a", 1000), make_case("b", interrupted)], path, resume=False)
    assert list(accuracy.records.read(path)) == ["a"]


def test_a_source_that_cannot_be_asked_is_named(module: Callable[[str], ModuleType]) -> None:
    cases, _, broken = module("accuracy").gather(("no_such_source", "fitcheck"))
    assert len(cases) == 10
    assert [line.partition(":")[0] for line in broken] == ["no_such_source"]


def outcomes(module: Callable[[str], ModuleType], *pairs: tuple[int, int]) -> list[Any]:
    record = module("published.outcomes").Outcome
    return [
        record(
            id=str(index), source="s", workload="full", metric="reserved", measured=measured, resolution=1,
            reserved=predicted, error_percent=100 * (predicted / measured - 1),
        )
        for index, (measured, predicted) in enumerate(pairs)
    ]  # fmt: skip


def test_verdicts_at_capacities_beside_the_peak(module: Callable[[str], ModuleType]) -> None:
    lines = list(
        module("published.summary").capacity_table(
            outcomes(module, (1000, 1000), (1000, 1030), (1000, 890), (1000, 999))
        )
    )
    assert lines[0].startswith("capacity 2% above the peak: 3 of 4 (75.0 %) rightly 'fits'; 2% below it: 3 of 4")
    assert lines[1].startswith("capacity 5% above the peak: 4 of 4 (100.0 %) rightly 'fits'; 5% below it: 3 of 4")
    assert "10% below it: 3 of 4" in lines[2]
    # 999 would be written as 1000: no further off than the figure says.
    assert lines[3].startswith("capacity of exactly the prediction: 1 of 4")


def test_a_card_too_small_for_the_prediction_is_named(module: Callable[[str], ModuleType]) -> None:
    found = outcomes(module, (2**30, 2**30), (2**30, 100 * 2**30))
    lines = list(module("published.summary").card_table(found, {"0": "Tesla T4 (x)", "1": "Tesla T4 (x)"}))
    assert lines[0].startswith("1: ")
    assert lines[1] == "card that it ran on: 1 of 2 (50.0 %) rightly 'fits'"


@given(values=st.lists(st.floats(0, 100), min_size=1, max_size=50), share=st.floats(0.01, 1))
def test_quantiles_have_their_share_below_and_no_more_than_need_be(values: list[float], share: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        quantile = importlib.import_module("published.summary").quantile
    values.sort()
    found = quantile(values, share)
    needed = math.ceil(share * len(values))
    assert sum(value <= found for value in values) >= needed
    assert sum(value < found for value in values) < needed


def test_the_error_table_counts_failures_apart(module: Callable[[str], ModuleType]) -> None:
    found = outcomes(module, (1000, 1010), (1000, 960), (1000, 1000))
    broken = module("published.outcomes").Outcome(
        id="f", source="s", workload="full", metric="reserved", measured=1, resolution=1, failure="no"
    )
    last = list(module("published.summary").error_table([*found, broken]))[-1].split()
    assert last[:4] == ["all", "whole", "runs", "3"]
    assert [float(each) for each in last[4:7]] == pytest.approx([1.0, 4.0, -4.0])
    assert last[-2:] == ["1", "failed"]


def test_peers_that_fail_are_named_and_times_are_ratios(
    module: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = module("peers")
    answers = {
        "memplan": {"peak": 101, "seconds": 2.0},
        "memtracker": {"error": "frozen"},
        "torchinfo": {"peak": 50, "seconds": 1.0},
    }
    monkeypatch.setattr(peers, "ask", lambda tool, job: answers[tool])
    lines = list(peers.compare([("job", 100, {})]))
    assert "+1.000    1.0x" in lines[1]
    assert "-50.000    0.5x" in lines[1]
    assert lines[3:] == [
        "memtracker: 0 of 1", "torchinfo: 1 of 1, median 50.000 %, worst -50.0 %, 0.5x memplan's time",
        "memtracker on job: frozen",
    ]  # fmt: skip


@needs_table
@pytest.mark.slow
@pytest.mark.parametrize("identity", ["snap-kkaitlyn_memory_ctx128_forward-reserved"])
def test_a_row_is_reproduced(module: Callable[[str], ModuleType], identity: str) -> None:
    (case,) = [case for case in module("accuracy").gather(("snapshots",))[0] if case.id == identity]
    assert abs(case.predict().reserved - case.measured) <= case.resolution
