"""What the GPUs of an estimated job cost, by a table that the user gives."""

from dataclasses import replace

from memplan.hardware.prices import PriceTable
from memplan.measure.records import Estimate, Price


def with_price(estimate: Estimate, prices: PriceTable | None, gpus: int) -> Estimate:
    """The estimate with what so many GPUs cost, where the table says it."""
    if prices is None or estimate.gpu.name not in prices.per_hour:
        return estimate
    each = prices.per_hour[estimate.gpu.name]
    return replace(estimate, price=Price(per_hour=gpus * each, gpus=gpus, currency=prices.currency))
