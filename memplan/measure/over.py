"""How far a step is over a limit, with one meaning for every report."""

from memplan.units import format_bytes


def over(device_bytes: int, high_bytes: int, limit_bytes: int) -> str:
    """``4.96 GiB over``: the predicted peak less the limit; where only the interval is over it, by its upper end.

    The words name what is over, if it is not the peak; they are empty where nothing is.
    """
    if device_bytes > limit_bytes:
        return f"{format_bytes(device_bytes - limit_bytes)} over"
    return f"upper end {format_bytes(high_bytes - limit_bytes)} over" if high_bytes > limit_bytes else ""
