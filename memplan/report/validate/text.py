"""A validation as text: predicted beside measured, and where the allocation streams part."""

from collections.abc import Iterable, Iterator

from rich.text import Text

from memplan.report.draw.layout import SEPARATOR, bounded, file_name, flow, pad, paragraphs, stacked
from memplan.report.estimate.job import job_lines
from memplan.text import shorten
from memplan.units import format_bytes
from memplan.validate.records import Alignment, Cause, Difference, Named, Peaks, Tally, Validation

DIFFERENCES_SHOWN = 5
TALLIES_SHOWN = 8
_NAME_CELLS = 11
_SIZE_CELLS = 14


def render(validation: Validation, *, width: int = 80, explain: bool = False, quiet: bool = False) -> list[Text]:
    """Write a validation as lines of styled text; ``quiet`` only the table of peaks."""
    width = bounded(width)
    blocks = [list(_peaks(validation))]
    if not quiet:
        blocks = [_head(validation, width), *blocks, *_streams(validation.alignment, width, explain=explain)]
        blocks.append(paragraphs("notes", _notes(validation), width))
        if explain:
            blocks.append(paragraphs("assumed", validation.estimate.assumptions, width))
            blocks.append(paragraphs("not modelled", validation.estimate.not_modelled, width))
    return stacked(blocks, width)


def _head(validation: Validation, width: int) -> list[Text]:
    device, run = validation.device, validation.run
    place = device.name if device.kind == "cpu" else f"{device.name}{SEPARATOR}cuda:{device.index}"
    steps = f"{run.steps} step{'s' if run.steps != 1 else ''} in {run.seconds:.1f} s"
    versions = [f"{name} {text}" for name, text in device.versions.items() if name != "torch"]
    items = [place, *versions, validation.profile_note, steps]
    return [*job_lines(validation.estimate, width), *flow("on", items, width)]


def _peaks(validation: Validation) -> Iterator[Text]:
    titles = (pad("", _NAME_CELLS + 2), "predicted".rjust(_SIZE_CELLS), "measured".rjust(_SIZE_CELLS))
    yield Text("".join(titles) + "    predicted - measured", style="bold")
    measured = validation.run.measured.peaks
    for figure in Peaks._fields:
        ours, theirs = getattr(validation.predicted, figure), getattr(measured, figure)
        if ours is None and theirs is None:
            continue
        sizes = "".join((format_bytes(size) if size is not None else "-").rjust(_SIZE_CELLS) for size in (ours, theirs))
        yield Text.assemble(f"  {pad(figure, _NAME_CELLS)}{sizes}    ", _error(ours, theirs))


def _error(predicted: int | None, measured: int | None) -> tuple[str, str]:
    if predicted is None or measured is None:
        return "not known", "dim"
    if predicted == measured:
        return "exact", "green"
    share = f"{100 * (predicted / measured - 1):+.3f} %  " if measured else ""
    return f"{share}({predicted - measured:+,} B)", "yellow"


def _streams(alignment: Alignment | None, width: int, *, explain: bool) -> Iterator[list[Text]]:
    if alignment is None:
        return
    yield list(_shares(alignment))
    if alignment.differences:
        shown = alignment.differences[:DIFFERENCES_SHOWN]
        title = Text(f"first differences ({alignment.difference_count:,} in all)", style="bold")
        yield [title, *(line for difference in shown for line in _difference(difference, width))]
    if explain and alignment.tallies:
        rows = [_tally(tally, width) for tally in alignment.tallies[:TALLIES_SHOWN]]
        yield [Text("what differs most", style="bold"), *rows]


def _shares(alignment: Alignment) -> Iterator[Text]:
    counts = f"{alignment.predicted:,} predicted, {alignment.real:,} came: "
    if alignment.is_exact:
        verdict = ("all the same, in order and in size", "green")
    else:
        verdict = (f"{_percent(alignment.share)} the same, in order and in size", "yellow")
    yield Text.assemble(("events  ", "bold"), counts, verdict)
    for share in alignment.shares:
        same = share.matched / max(share.predicted, share.real)
        counts = f"{share.matched:,} of {share.predicted:,} predicted, {share.real:,} came"
        yield Text(f"  {pad(share.part, _NAME_CELLS)}{_percent(same):>9}  {counts}")


def _percent(share: float) -> str:
    # Rounding up to 100 would claim what is not so.
    return "100 %" if share == 1 else f"{min(100 * share, 99.99):.2f} %"


def _difference(difference: Difference, width: int) -> Iterator[Text]:
    place = f"step {difference.step}, {difference.part}" if difference.step else "set-up"
    yield Text(f"  {place}" + (f" (and {difference.times - 1:,} more like it)" if difference.times > 1 else ""))
    sides = (
        ("predicted", difference.predicted, difference.predicted_events),
        ("real", difference.real, difference.real_events),
    )
    for side, events, count in sides:
        lines = [_event(event) for event in events] or ["nothing"]
        if count > len(events):
            lines.append(f"and {count - len(events):,} more")
        for label, line in zip([side, *[""] * len(lines)], lines, strict=False):
            yield Text.assemble((f"    {label:<10}", "dim"), shorten(line, width - 14))


def _event(event: Named) -> str:
    return f"{event.action:<5} {event.nbytes:,} B  {_cause(event.cause)}"


def _cause(cause: Cause) -> str:
    parts = (cause.what, cause.where, file_name(cause.source))
    return SEPARATOR.join(part for part in parts if part) or "(no stack)"


def _tally(tally: Tally, width: int) -> Text:
    head = f"  {tally.side:<10}{tally.events:>7,} x  {format_bytes(tally.nbytes):>10}  "
    return Text(head + shorten(_cause(tally.cause), width - len(head)))


def _notes(validation: Validation) -> Iterable[str]:
    run = validation.run
    if run.out_of_memory:
        yield f"the run ended out of memory: {run.out_of_memory}"
    if run.measured.retries:
        yield f"the allocator gave its cache back {run.measured.retries} times"
    if run.measured.context_bytes is not None:
        yield f"the bare CUDA context took {format_bytes(run.measured.context_bytes)}"
    stream = run.measured.stream
    if stream is not None and len(stream.marks) < run.steps:
        yield f"the history covers {len(stream.marks)} of {run.steps} steps"
    yield from run.measured.notes
