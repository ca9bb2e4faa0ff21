"""``--time-limit``: time for a search, or how much it may trace."""

import math

from memplan.errors import UsageError
from memplan.job.limits import MAX_COUNT
from memplan.units import parse_seconds

TRACES = "traces"


def read_time_limit(given: str | float, name: str = "--time-limit") -> tuple[float, int | None]:
    """Return seconds, and how much may be traced; of the two one is without a limit.

    Args:
        given: ``60s``, ``40traces``, or a number of seconds.
        name: What messages call it.

    Raises:
        UsageError: It is neither a time nor a number of traces above 0.
    """
    text = str(given).strip()
    number = text.removesuffix(TRACES).strip()
    if text.endswith(TRACES) and number.isdecimal() and 0 < int(number) <= MAX_COUNT:
        return math.inf, int(number)
    try:
        found = parse_seconds(text) if isinstance(given, str) else float(given)
    except ValueError:
        found = 0.0
    if not 0 < found < math.inf:
        raise UsageError(f"{name} takes a time or a number of traces above 0, as 60s or 40traces, not '{given}'")
    return found, None
