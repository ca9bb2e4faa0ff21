"""A calibration as text: what was measured beside what the profile said before."""

from collections.abc import Iterator

from rich.text import Text

from memplan.report.draw.layout import paragraphs
from memplan.text import shorten
from memplan.units import format_bytes
from memplan.validate.calibration_records import WrittenProfile

_LABEL_CELLS = 44


def render(written: WrittenProfile, *, width: int = 80) -> list[Text]:
    """Write a calibration as lines of styled text; where the profile is comes last."""
    calibration = written.calibration
    versions = "  ".join(f"{name} {text}" for name, text in calibration.facts.versions.items())
    lines = [Text(shorten(calibration.facts.name, width), style="bold"), Text(shorten(versions, width), style="dim")]
    lines += [Text(shorten(line, width)) for line in _figures(written)]
    lines += paragraphs("notes", calibration.notes, width)
    over = f", over {written.before.name}" if written.before else ""
    return [*lines, Text(f"written to {written.path}{over}")]


def _figures(written: WrittenProfile) -> Iterator[str]:
    calibration, before = written.calibration, written.before
    yield _size("total", calibration.facts.total_bytes, before.total_bytes if before else None)
    yield _size("usable by a fresh process", calibration.usable_bytes, before.usable_bytes if before else None)
    yield _size("context, bare", calibration.context_low_bytes, before.context_low_bytes if before else None)
    yield _size("context, kernels loaded", calibration.context_bytes, before.context_bytes if before else None)
    workspace = before.cublas_workspace_bytes if before else None
    yield _size("cuBLAS workspace", calibration.cublas_workspace_bytes, workspace)
    yield _size("cuDNN workspace of a convolution", calibration.cudnn_workspace_bytes, None)
    for transfer in calibration.transfers:
        yield f"  {transfer.kind:<{_LABEL_CELLS}}{transfer.bytes_per_second / 1e9:>10.2f} GB/s"


def _size(label: str, measured: int | None, before: int | None) -> str:
    shown = "not known" if measured is None else format_bytes(measured)
    former = f"   profile: {format_bytes(before)}" if before else ""
    return f"  {label:<{_LABEL_CELLS}}{shown:>15}{former}"
