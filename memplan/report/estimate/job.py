"""The head of the text report: versions, what the step was, and which values were read rather than assumed."""

from collections.abc import Mapping
from typing import Protocol

from rich.text import Text

from memplan.measure.records import Estimate
from memplan.report.draw.layout import flow, head_line

COUNT_UNITS = {"T": 10**12, "B": 10**9, "M": 10**6, "k": 10**3}
FLOP_UNITS = {"E": 10**18, "P": 10**15, "T": 10**12, "G": 10**9, "M": 10**6}
DEFAULT = "default"
"""Provenance of a value that nobody gave."""
# These are always shown, in this order; other options only where somebody gave them.
_LEADING = ("precision", "optimizer", "optimizer_impl", "batch_size", "seq_len", "checkpoint", "mode", "parallel")


def job_lines(estimate: Estimate, width: int) -> list[Text]:
    """The header, job and read lines."""
    traced = f"traced on CPU in {estimate.timings.get('trace_seconds', 0.0):.1f} s"
    versions = f"memplan {estimate.memplan_version}  torch {estimate.torch_version}  {traced}"
    given = (
        f"{field} {source}"
        for field, source in sorted(estimate.provenance.items())
        if source != DEFAULT and field != "target" and _is_place(source)
    )
    return [
        head_line(versions, estimate.target, width),
        *flow("job", job_items(estimate), width),
        *flow("read", given, width),
    ]


def _is_place(source: str) -> bool:
    """An option or a file and line, rather than a sentence, which ``--explain`` has room for."""
    return not any(char.isspace() for char in source)


class Described(Protocol):
    """A job as any answer about it tells it."""

    @property
    def options(self) -> Mapping[str, str]:
        """Field → text."""

    @property
    def provenance(self) -> Mapping[str, str]:
        """Field → where its value came from."""

    @property
    def parameters(self) -> int:
        """Of the model."""

    @property
    def trainable_parameters(self) -> int:
        """Those that learn."""


def job_items(estimate: Described) -> list[str]:
    """What the step was: its size, what matters most, and whatever else somebody gave."""
    options = estimate.options
    items = [f"{scaled(estimate.parameters, COUNT_UNITS).rstrip()} parameters"]
    if estimate.trainable_parameters != estimate.parameters:
        items.append(f"{scaled(estimate.trainable_parameters, COUNT_UNITS).rstrip()} trainable")
    items += [_leading(field, options) for field in _LEADING if options.get(field, "")]
    others = (field for field in options if field not in _LEADING and options[field])
    items += [f"{field} {options[field]}" for field in others if estimate.provenance.get(field, DEFAULT) != DEFAULT]
    return [item for item in items if item]


def _leading(field: str, options: Mapping[str, str]) -> str:
    match field:
        case "batch_size":
            return f"batch {options[field]}" + (f" x seq {options['seq_len']}" if options.get("seq_len") else "")
        case "optimizer":
            implementation = options.get("optimizer_impl", "auto")
            return options[field] + (f" ({implementation})" if implementation != "auto" else "")
        case "seq_len" | "optimizer_impl":  # said together with their leaders
            return ""
        case "checkpoint":
            return "no checkpointing" if options[field] == "none" else f"checkpoint {options[field]}"
        case _:
            return options[field]


def scaled(number: int, units: Mapping[str, int]) -> str:
    """A number in the largest unit that it fills: ``8.03 B``."""
    for unit, factor in units.items():
        # Step up as soon as rounding to two decimals would fill the unit.
        if number >= factor * 0.999995:
            return f"{number / factor:.2f} {unit}"
    return f"{number} "
