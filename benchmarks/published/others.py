"""Published peaks that no source here runs again, each with the reason; said before any error was looked at."""

from collections.abc import Callable

from published.case import Case, Excluded
from published.table import Row, read_table

ELSEWHERE = ("litgpt-", "liger-", "snap-", "fitcheck-", "tune-", "meg-")
"""Beginnings of the ids that have a module of their own."""

SHARDED = "several GPUs: predicted by benchmarks/sharding.py, or left out there with its reason"
LENGTHS = "sequence lengths follow a data set that is not at hand"
COUNTER = "the source does not say which counter it read"


def _sharded(row: Row) -> bool:
    return not row["n_gpus"].startswith("1") or "multi" in row["n_gpus"]


def _from(source: str) -> Callable[[Row], bool]:
    return lambda row: row["source"].startswith(source)


RULES: tuple[tuple[Callable[[Row], bool], str], ...] = (
    (lambda row: row["metric"] == "unknown" and row["source"] == "accelerate docs", f"{COUNTER}, nor what it ran"),
    (_sharded, SHARDED),
    (lambda row: row["metric"] == "unknown", COUNTER),
    (
        lambda row: row["metric"] == "nvidia-smi",
        "nvidia-smi of CUDA 11.2 and torch 1.10: context and cuBLAS workspaces outside the allocator are in it",
    ),
    (lambda row: "compiled" in row["dtype_scheme"], "compiled code (torch.compile)"),
    (lambda row: "dynamic" in row["seq"], LENGTHS),
    (
        _from("ms-swift"),
        "reserved memory of a run whose lengths follow a data set that is not at hand; the model is remote code",
    ),
)
"""The first that holds gives the reason."""


def cases() -> tuple[list[Case], list[Excluded]]:
    """No case, and every row that has no module of its own."""
    rows = [row for row in read_table() if not row["id"].startswith(ELSEWHERE)]
    return [], [Excluded(id=row["id"], source=row["source"], reason=reason(row)) for row in rows]


def reason(row: Row) -> str:
    """Why a row is not run.

    Raises:
        LookupError: No rule holds.
    """
    for holds, text in RULES:
        if holds(row):
            return text
    raise LookupError(row["id"])
