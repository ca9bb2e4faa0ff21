"""The rows of Liger-Kernel's table that say something of memory."""

import csv
import json
import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured peak and the configuration that a script was given."""

    id: str
    """``liger-kernel-provider-mode-x`` and the line of the table."""
    kernel: str
    """``kernel_name``: which script."""
    provider: str
    """Whose code ran: ``liger``, ``huggingface``, ``torch``…"""
    mode: str
    """``full``, ``forward`` or ``backward``."""
    x_name: str
    """Which dimension ``x`` is."""
    x: int
    """The swept dimension."""
    config: Mapping[str, Any]
    """``extra_benchmark_config``: everything else; types as strings (``torch.bfloat16``)."""
    gpu: str
    """As torch names it."""
    version: str
    """Liger-Kernel installed; scripts on the way to the next release carry the last one's number."""
    day: str
    """``2024-09-03``."""
    measured: int
    """Bytes."""
    providers: tuple[str, ...] = ()
    """Whose code the same process ran before, one after the other: all are timed before any memory is measured."""


def data_folder() -> Path:
    """Where the research data lies."""
    return Path(os.environ.get("MEMPLAN_DATA", Path(__file__).parents[4] / "shared" / "data"))


def read_rows() -> list[Row]:
    """All rows with memory figures, in the table's order; none without the table."""
    table = data_folder() / "kernels" / "liger_all_benchmark_data.csv"
    if not table.exists():
        return []
    with table.open(newline="") as file:
        lines = list(csv.DictReader(file))
    rows = [_row(line, number) for number, line in enumerate(lines, 2) if line["metric_name"] == "memory"]
    providers: dict[tuple[str, ...], dict[str, None]] = defaultdict(dict)
    for row in rows:
        providers[_process(row)][row.provider] = None
    return [replace(row, providers=tuple(providers[_process(row)])) for row in rows]


def _process(row: Row) -> tuple[str, ...]:
    """What the rows of one run of a script have in common."""
    return row.kernel, row.version, row.gpu, row.day


def _row(line: Mapping[str, str], number: int) -> Row:
    kernel, provider, mode = line["kernel_name"], line["kernel_provider"], line["kernel_operation_mode"]
    x = int(float(line["x_value"]))
    return Row(
        id=f"liger-{kernel}-{provider}-{mode}-{line['x_name']}{x}-L{number}",
        kernel=kernel,
        provider=provider,
        mode=mode,
        x_name=line["x_name"],
        x=x,
        config=json.loads(line["extra_benchmark_config_str"]),
        gpu=line["gpu_name"],
        version=line["liger_version"],
        day=line["timestamp"][:10],
        measured=round(float(line["y_value_50"]) * 2**20),
    )
