"""``memplan estimate --prices``: a column, the cheapest that fits, a key of JSON."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from memplan.measure.records import Verdict
from tests.cli.conftest import Library
from tests.report.example_estimates import FITS

VERDICTS = {"h100-80g": Verdict.FITS, "a100-80g": Verdict.FITS, "t4": Verdict.OOM, "mi300x": Verdict.FITS}
PRICES = 'currency = "EUR"\nh100 = 2.5\na100-80g = 1.25\nt4 = 0.5\n'


@pytest.fixture
def priced(library: Library, run: Callable[..., int]) -> Callable[..., int]:
    """Four GPUs, of which the cheapest is too small and another has no price."""
    library.answers = tuple(
        replace(FITS, verdict=verdict, gpu=replace(FITS.gpu, name=name)) for name, verdict in VERDICTS.items()
    )
    Path("prices.toml").write_text(PRICES)
    return lambda *words: run("--prices", "prices.toml", *words)


def test_a_column_and_the_cheapest_that_fits(priced: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert priced("--quiet") == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if "peak" in line or "cheapest" in line]
    assert [re.findall(r"[\d.]+ EUR/h|cheapest.*", row) for row in rows] == [
        ["2.50 EUR/h"], ["1.25 EUR/h"], ["0.50 EUR/h"], [], ["cheapest that fits: a100-80g, 1.25 EUR per hour"],
    ]  # fmt: skip
    # A column: what follows the price begins at the same place, with and without one.
    assert len({row.index("peak") for row in rows[:-1]}) == 1


def test_all_gpus_of_the_job_are_counted(priced: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert priced("--json", "--parallel", "fsdp=4,tp=2") == 0
    prices = {each["gpu"]["name"]: each.get("price") for each in json.loads(capsys.readouterr().out)["estimates"]}
    assert prices["h100-80g"] == {"per_hour": 8 * 2.5, "gpus": 8, "currency": "EUR"}
    assert prices["mi300x"] is None
    assert priced("--quiet", "--parallel", "fsdp=4,tp=2") == 0
    assert "a100-80g, 10.00 EUR per hour for 8 of them" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["h200-14g = 3", "t4 = -1", 't4 = "much"', "t4 = nan"])
def test_a_wrong_table_is_refused_before_anything_is_traced(
    text: str, priced: Callable[..., int], library: Library, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("prices.toml").write_text(text)
    assert priced() == 2
    assert "prices.toml" in capsys.readouterr().err
    assert not library.specs
