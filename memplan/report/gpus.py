"""GPU profiles as text and as JSON. Memory in binary units; rates in the vendors' decimal ones."""

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields

from rich.text import Text

from memplan.contract.document import SCHEMA_VERSION
from memplan.hardware.profile import GpuProfile
from memplan.report.draw.layout import pad, paragraphs
from memplan.text import clean, shorten
from memplan.units import GIB, format_bytes

NOT_KNOWN = "-"
LEGEND = "total, usable: GiB · GB/s: device memory · TFLOP/s: dense bf16 · cc: capability"
_COLUMNS = (("name", 17), ("total", -6), ("usable", -6), ("GB/s", -5), ("TFLOP/s", -7), ("cc", -4))
"""Heading and cells of each column before the title, which takes the rest; negative: aligned right."""
_LABEL_CELLS = 21


def render_list(profiles: Sequence[GpuProfile], *, width: int = 80) -> list[Text]:
    """One line per profile under a heading, and what the columns mean below."""
    heading = _row([title for title, _ in _COLUMNS], "card", width)
    heading.stylize("bold")
    rows = [_row(_cells(profile), profile.title, width) for profile in profiles]
    return [heading, *rows, *(Text(line, style="dim") for line in textwrap.wrap(LEGEND, width, break_on_hyphens=False))]


def render_one(profile: GpuProfile, *, width: int = 80) -> list[Text]:
    """Every figure of one profile, and below them where each comes from."""
    lines = [Text(shorten(f"{profile.name} · {profile.title}", width), style="bold")]
    for label, value in _figures(profile).items():
        lines += _labelled(label, value, width)
    if profile.sources:
        lines.append(Text())
    for key, source in _grouped(profile.sources).items():
        lines += paragraphs(shorten(key, width), [source], width)
    return lines


def render_json(profiles: Sequence[GpuProfile]) -> str:
    """Profiles as JSON: every field by its name, sizes in bytes, rates per second."""
    document = {"schema_version": SCHEMA_VERSION, "command": "gpus", "gpus": [asdict(profile) for profile in profiles]}
    return json.dumps(document, sort_keys=True, indent=2, allow_nan=False)


def _cells(profile: GpuProfile) -> list[str]:
    bf16 = profile.peak_flops.get("bf16")
    return [
        profile.name,
        f"{profile.total_bytes / GIB:.2f}" if profile.total_bytes else NOT_KNOWN,
        f"{profile.usable_bytes / GIB:.2f}" if profile.usable_bytes else NOT_KNOWN,
        f"{profile.memory_bandwidth / 1e9:.0f}" if profile.memory_bandwidth else NOT_KNOWN,
        f"{bf16 / 1e12:.1f}" if bf16 else NOT_KNOWN,
        _capability(profile) or NOT_KNOWN,
    ]


def _row(cells: Sequence[str], title: str, width: int) -> Text:
    parts = [
        pad(cell, size) if size > 0 else shorten(cell, -size).rjust(-size)
        for cell, (_, size) in zip(cells, _COLUMNS, strict=True)
    ]
    line = " ".join(parts) + "  "
    # "NVIDIA" before nearly every title says nothing and costs a fifth of the column.
    return Text(line + shorten(title.removeprefix("NVIDIA "), max(0, width - len(line))))


def _capability(profile: GpuProfile) -> str:
    return ".".join(map(str, profile.compute_capability)) if profile.compute_capability else ""


def _figures(profile: GpuProfile) -> Mapping[str, str]:
    """Label → text; empty where the figure does not exist for this device."""
    return {
        "kind": profile.kind,
        "aliases": ", ".join(profile.aliases),
        "total memory": _size(profile.total_bytes) or "no fixed limit",
        "usable memory": _size(profile.usable_bytes) or "no fixed limit",
        "context": _size(profile.context_bytes) + _context_range(profile),
        "cuBLAS workspace": _size(profile.cublas_workspace_bytes),
        "compute capability": _capability(profile),
        "multiprocessors": f"{profile.sm_count} x {profile.threads_per_sm} threads" if profile.sm_count else "",
        "memory bandwidth": _rate(profile.memory_bandwidth),
        "host link": _rate(profile.host_link_bandwidth, " (one direction)"),
        "peer link": _rate(profile.peer_link_bandwidth, " (both directions)"),
        "peak TFLOP/s, dense": _flops(profile),
    }


def _size(size: int) -> str:
    return f"{format_bytes(size)} ({size:,} B)" if size else ""


def _context_range(profile: GpuProfile) -> str:
    if not (profile.context_low_bytes and profile.context_high_bytes):
        return ""
    return f", seen {format_bytes(profile.context_low_bytes)} to {format_bytes(profile.context_high_bytes)}"


def _rate(bytes_per_second: float, note: str = "") -> str:
    return f"{bytes_per_second / 1e9:,.10g} GB/s{note}" if bytes_per_second else ""


def _flops(profile: GpuProfile) -> str:
    dtypes: dict[float, list[str]] = {}
    for dtype, rate in profile.peak_flops.items():
        dtypes.setdefault(rate, []).append(dtype)
    return ", ".join(f"{' '.join(names)} {rate / 1e12:.5g}" for rate, names in dtypes.items())


def _labelled(label: str, value: str, width: int) -> list[Text]:
    """The label before the value's first line; nothing at all without a value."""
    lines = textwrap.wrap(clean(value), max(10, width - _LABEL_CELLS - 2), break_on_hyphens=False)
    labels = [label, *[""] * len(lines)]
    return [
        Text.assemble((f"  {name:<{_LABEL_CELLS}}", "dim"), line) for name, line in zip(labels, lines, strict=False)
    ]


def _grouped(sources: Mapping[str, str]) -> Mapping[str, str]:
    """Keys that share a source on one line, in the order of the record's fields."""
    order = [field.name for field in fields(GpuProfile) if field.name in sources]
    by_source: dict[str, list[str]] = {}
    for key in order:
        by_source.setdefault(sources[key], []).append(key)
    return {", ".join(keys): source for source, keys in by_source.items()}
