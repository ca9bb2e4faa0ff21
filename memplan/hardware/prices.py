"""What GPUs cost: a table that the user gives, since memplan knows no prices."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memplan.errors import UsageError
from memplan.files.documents import read_json, read_toml
from memplan.files.read import SETTINGS, UnreadableError
from memplan.hardware.catalog import load_profile
from memplan.hardware.schema import rate

CURRENCY = "currency"
"""The one key that names no GPU."""
_LONGEST = 8
"""Characters of a currency: a column has room for a code or a sign, not for a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceTable:
    """What an hour of one GPU costs."""

    per_hour: Mapping[str, float]
    """Profile's name → price."""
    currency: str = ""
    """Of all prices; empty where the table does not say."""


def read_prices(path: Path, profile_dirs: Sequence[Path] = ()) -> PriceTable:
    """Read a table of prices: JSON where the file's name says so, else TOML.

    Args:
        path: ``"h100-80g" = 2.99`` for each GPU, by any name that ``load_profile`` takes; ``currency = "EUR"``.
        profile_dirs: As for ``load_profile``.

    Raises:
        UsageError: The file cannot be read, or keys or values in it are wrong; all of them are named.
    """
    try:
        content = read_json(path, SETTINGS) if path.suffix == ".json" else read_toml(path)[0]
    except UnreadableError as error:
        raise UsageError(f"--prices: cannot read prices: {error}", where=str(path)) from error
    if not isinstance(content, dict):
        raise UsageError("--prices: expected an object, GPU → price of an hour", where=str(path))
    prices: dict[str, float] = {}
    faults = list(_faults(content, prices, profile_dirs))
    if faults:
        raise UsageError(
            "--prices: the table is not valid:" + "".join(f"\n    {each}" for each in faults), where=str(path)
        )
    return PriceTable(per_hour=prices, currency=content.get(CURRENCY, ""))


def _faults(content: Mapping[str, Any], prices: dict[str, float], profile_dirs: Sequence[Path]) -> Iterator[str]:
    """Take prices over into a table; yield what is wrong with the others."""
    for key, value in content.items():
        try:
            if key == CURRENCY:
                _check_currency(value)
                continue
            name, price = load_profile(key, profile_dirs=profile_dirs).name, rate(value)
            if name in prices:
                raise ValueError(f"{name} has a price already")  # noqa: TRY301 - told like the others.
            prices[name] = price
        except UsageError as error:
            yield f"{error.what}; {error.hint}"
        except ValueError as error:
            yield f"{key}: {error}"


def _check_currency(value: object) -> None:
    if not isinstance(value, str) or not value.isprintable() or len(value) > _LONGEST:
        raise ValueError(f"expected a word of at most {_LONGEST} characters, found {value!r}")
