"""What GPUs cost, beside their verdicts, where the user gave a table."""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from memplan.measure.records import Estimate, Price, Verdict
from memplan.report.draw.layout import pad
from memplan.text import clean, shorten


def price_cells(estimates: Sequence[Estimate]) -> list[str]:
    """Return a cell for each estimate, all of one width: ``2.99 EUR/h``; empty ones where no GPU has a price."""
    cells = [f"{_amount(each.price)}/h  " if each.price else "" for each in estimates]
    width = max(map(cell_len, cells))
    return [pad(cell, width) for cell in cells]


def cheapest_lines(estimates: Sequence[Estimate], width: int) -> list[Text]:
    """Name the cheapest of several GPUs that the job surely fits on, of those with a price."""
    priced = [
        (each.price, each.gpu.name) for each in estimates if each.price is not None and each.verdict is Verdict.FITS
    ]
    if len(estimates) == 1 or not priced:
        return []
    price, name = min(priced, key=lambda each: each[0].per_hour)
    count = f" for {price.gpus} of them" if price.gpus > 1 else ""
    return [Text(shorten(f"cheapest that fits: {name}, {_amount(price)} per hour{count}", width))]


def _amount(price: Price) -> str:
    return f"{price.per_hour:,.2f} {clean(price.currency)}".rstrip()
