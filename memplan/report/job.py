"""The head of the text report: versions, what the step was, and which values were read rather than assumed."""

from collections.abc import Mapping

from rich.text import Text

from memplan.estimate.records import Estimate
from memplan.report.layout import flow, shorten, spread

DEFAULT = "default"
"""Provenance of a value that nobody gave."""
# These are always shown, in this order; other options only where somebody gave them.
_LEADING = ("precision", "optimizer", "optimizer_impl", "batch_size", "seq_len", "checkpoint", "mode")


def job_lines(estimate: Estimate, width: int) -> list[Text]:
    """The header, job and read lines."""
    traced = f"traced on CPU in {estimate.timings.get('trace_seconds', 0.0):.1f} s"
    versions = f"memplan {estimate.memplan_version}  torch {estimate.torch_version}  {traced}"
    target = Text(shorten(estimate.target, max(16, width - len(versions) - 2)), style="bold")
    given = (
        f"{field} {source}"
        for field, source in sorted(estimate.provenance.items())
        if source != DEFAULT and field != "target"
    )
    return [
        spread(Text(versions, style="dim"), target, width),
        *flow("job", _job_items(estimate), width),
        *flow("read", given, width),
    ]


def _job_items(estimate: Estimate) -> list[str]:
    options = estimate.options
    items = [count_of(estimate.parameters, "parameters")]
    if estimate.trainable_parameters != estimate.parameters:
        items.append(count_of(estimate.trainable_parameters, "trainable"))
    items += [_leading(field, options) for field in _LEADING if options.get(field, "")]
    others = (field for field in options if field not in _LEADING and options[field])
    items += [f"{field} {options[field]}" for field in others if estimate.provenance.get(field, DEFAULT) != DEFAULT]
    return [item for item in items if item]


def _leading(field: str, options: Mapping[str, str]) -> str:
    match field:
        case "batch_size":
            return f"batch {options[field]}" + (f" x seq {options['seq_len']}" if options.get("seq_len") else "")
        case "optimizer":
            return options[field] + (f" ({options['optimizer_impl']})" if options.get("optimizer_impl") else "")
        case "seq_len" | "optimizer_impl":  # said together with their leaders
            return ""
        case "checkpoint":
            return "no checkpointing" if options[field] == "none" else f"checkpoint {options[field]}"
        case _:
            return options[field]


def count_of(number: int, what: str) -> str:
    """A count in short form: ``8.03 B parameters``."""
    for unit, factor in (("T", 10**12), ("B", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= factor * 0.99995:
            return f"{number / factor:.2f} {unit} {what}"
    return f"{number} {what}"
