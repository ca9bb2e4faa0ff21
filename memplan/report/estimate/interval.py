"""What the interval around the peak rests on: one line, and the figures behind it for ``--explain``."""

from collections.abc import Iterator

from rich.text import Text

from memplan.measure.records import IntervalBasis
from memplan.report.draw.layout import flow

CLASSES = {
    "full": "full training",
    "checkpointed": "training with checkpointing",
    "lora": "LoRA fine-tuning",
    "qlora": "QLoRA fine-tuning",
    "inference": "inference",
    "compiled": "compiled steps",
    "sharded": "steps on several GPUs",
    "cnn": "CNNs or RNNs",
    "cpu": "training on a CPU",
    "rocm": "steps on AMD cards",
}
"""Class of workload → words."""


def interval_line(basis: IntervalBasis | None) -> list[Text]:
    """The line under the peak; nothing where an estimate does not say."""
    return [] if basis is None else [Text(f"  {rests_on(basis)}", style="dim")]


def interval_facts(basis: IntervalBasis | None, width: int) -> list[Text]:
    """The figures of the runs that the interval rests on."""
    return [] if basis is None else flow("basis", _facts(basis), width)


def rests_on(basis: IntervalBasis) -> str:
    """What the interval rests on, as one phrase."""
    name = CLASSES.get(basis.workload, basis.workload)
    if basis.level is not None:
        return f"{100 * basis.level:.0f} % interval from {_runs(basis.runs)} of {name}, {_sources(basis.sources)}"
    if basis.runs:
        own = f"{basis.own_runs or 'none'} of {name}"
        return f"interval from {_runs(basis.runs)}, {_sources(basis.sources)}; {own}"
    return f"interval from allocator and context alone; too few runs of {name}"


def _facts(basis: IntervalBasis) -> Iterator[str]:
    yield rests_on(basis)
    if basis.runs:
        ends = (f"{100 * (ratio - 1):+.2f} %" for ratio in (basis.low_ratio, basis.high_ratio))
        yield f"{basis.figure} bytes {' to '.join(ends)} of predicted"


def _runs(count: int) -> str:
    return "1 measured run" if count == 1 else f"{count} measured runs"


def _sources(count: int) -> str:
    # Runs of one source share code and author: how many there are says how far the figure may be trusted elsewhere.
    return "one source" if count == 1 else f"{count} sources"
