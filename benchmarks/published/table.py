"""The table of published peaks, ``measured/measured.csv`` of the research data: facts, each row with its source."""

import csv
import os
from pathlib import Path

Row = dict[str, str]
"""A row by column; ``id``, ``source``, ``gpu``, ``n_gpus``, ``metric`` and ``peak_gib`` are always there."""


def data_folder() -> Path:
    """Where the research data lies: ``MEMPLAN_DATA``, or ``shared/data`` beside the checkout."""
    return Path(os.environ.get("MEMPLAN_DATA", Path(__file__).parents[3] / "shared" / "data"))


def read_table() -> list[Row]:
    """All rows; none without the data."""
    path = data_folder() / "measured" / "measured.csv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def figure(row: Row) -> tuple[int, int]:
    """A row's peak in bytes, and half of its last digit's worth."""
    text = row["peak_gib"]
    decimals = len(text.partition(".")[2])
    return round(float(text) * 2**30), round(2**30 / 10**decimals / 2)


def accounted(known: set[str], rows: list[Row]) -> dict[str, str]:
    """Which rows some source speaks of.

    Args:
        known: Ids of all cases and exclusions.
        rows: The table.

    Returns:
        Id in the table → id of the case or exclusion. Liger-Kernel's rows, whose ids here end with a line of another
        edition of its table, are found by what else they say.
    """
    found = {row["id"]: row["id"] for row in rows if row["id"] in known}
    return found | _liger(known, [row for row in rows if row["id"].startswith("liger-")])


def _liger(known: set[str], rows: list[Row]) -> dict[str, str]:
    from published.liger.rows import read_rows

    candidates = [each for each in read_rows() if each.id in known]
    found: dict[str, str] = {}
    for row in rows:
        measured, resolution = figure(row)
        prefix = row["id"].rpartition("-")[0] + "-L"
        for each in candidates:
            same_run = each.id.startswith(prefix) and each.gpu == row["gpu"] and each.version in row["framework"]
            if same_run and abs(each.measured - measured) <= resolution:
                found[row["id"]] = each.id
    return found
