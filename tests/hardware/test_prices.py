"""Tables of prices: by any name of a GPU, in TOML or JSON, and everything that is wrong at once."""

from pathlib import Path

import pytest

from memplan.errors import UsageError
from memplan.hardware.prices import read_prices


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("prices.toml", 'currency = "EUR"\n"NVIDIA H100" = 2.5\nt4 = 0\n'),
        ("prices.json", '{"currency": "EUR", "h100-80g": 2.5, "Tesla T4": 0}'),
    ],
)
def test_names_and_aliases_have_prices(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    table = read_prices(tmp_path / name)
    assert (dict(table.per_hour), table.currency) == ({"h100-80g": 2.5, "t4": 0.0}, "EUR")


def test_a_table_need_not_name_its_currency(tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text("t4 = 0.35\n")
    assert read_prices(tmp_path / "prices.toml").currency == ""


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    lines = ["rtx-409 = 1", "t4 = -1", 'l4 = "cheap"', "a10 = true", "h100 = 2", "h100-80g = 2", "currency = 7"]
    (tmp_path / "prices.toml").write_text("\n".join(lines))
    with pytest.raises(UsageError) as error:
        read_prices(tmp_path / "prices.toml")
    told = str(error.value)
    for word in ("rtx-409", "did you mean rtx-4090", "t4: ", "-1", "l4: ", "'cheap'", "a10: ", "h100-80g has a price"):
        assert word in told
    assert "currency: " in told


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("prices.toml", "t4 = nan"),
        ("prices.toml", "t4 ="),
        ("prices.json", '{"t4": NaN}'),
        ("prices.json", "[0.35]"),
        ("prices.json", '{"t4": {"spot": 1}}'),
        ("missing.toml", None),
    ],
)
def test_what_is_no_table_of_prices_is_refused(name: str, text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match="--prices") as error:
        read_prices(tmp_path / name)
    assert error.value.where == str(tmp_path / name)
