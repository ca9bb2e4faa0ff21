"""The text report of ``memplan sweep``: one row per job and GPU, its configuration or its error below it."""

from collections.abc import Iterator, Mapping

from rich.cells import cell_len
from rich.text import Text

from memplan.plan.sweep.records import State, Sweep, SweepRow
from memplan.report.draw.layout import bounded, hanging, pad, paragraphs, spread, stacked
from memplan.report.recommend.text import ending_words, remedy_words
from memplan.text import clean
from memplan.units import format_bytes
from memplan.versions import installed

FITS_CELLS, PEAK_CELLS, RATE_CELLS = 10, 11, 11
MOST_NAME_CELLS = 24
"""Of a job's or a GPU's name; a longer one loses its middle."""
_MARKS: Mapping[State, tuple[str, str]] = {
    "as given": ("✓", "green"), "changed": ("✓", "green"), "no": ("✗", "red"), "unknown": ("?", "yellow")
}  # fmt: skip


def render(answer: Sweep, *, width: int = 80, quiet: bool = False) -> list[Text]:
    """Write a sweep as lines of styled text; ``quiet`` only the rows, without their configurations."""
    width = bounded(width)
    blocks = [[_head(answer, width)]] if not quiet else []
    blocks += [list(_table(answer, width, quiet=quiet))]
    blocks += [paragraphs("notes", answer.notes, width)] if not quiet else []
    blocks += [[_summary(answer)]]
    return stacked(blocks, width)


def _head(answer: Sweep, width: int) -> Text:
    words = f"memplan {installed('memplan')}  {len(answer.rows)} searches on {answer.backend} in {answer.seconds:.1f} s"
    return spread(Text(words, style="dim"), Text(clean(str(answer.project)), style="bold"), width)


def _table(answer: Sweep, width: int, *, quiet: bool) -> Iterator[Text]:
    job = _cells("job", [row.job for row in answer.rows])
    gpu = _cells("gpu", [_gpu(row) for row in answer.rows])
    figures = f"{'fits':<{FITS_CELLS}}{'peak':>{PEAK_CELLS}}{'samples/s':>{RATE_CELLS}}"
    yield Text(f"  {pad('job', job)}  {pad('gpu', gpu)}  {figures}", style="dim")
    for row in answer.rows:
        mark, style = _MARKS["unknown" if row.was_cut else row.state]
        yield Text.assemble((mark, style), f" {pad(row.job, job)}  {pad(_gpu(row), gpu)}  {_figures(row)}")
        if not quiet:
            yield from (Text(line, style="dim") for line in hanging("    ", _words(row), width))


def _cells(title: str, names: list[str]) -> int:
    return min(MOST_NAME_CELLS, max(map(cell_len, (title, *map(clean, names)))))


def _gpu(row: SweepRow) -> str:
    return row.gpu if row.gpus == 1 else f"{row.gpus} x {row.gpu}"


def _figures(row: SweepRow) -> str:
    state = f"{'not found' if row.was_cut else row.state:<{FITS_CELLS}}"
    if row.best is None:
        return state
    peak = format_bytes(row.best.device_bytes)
    return f"{state}{peak:>{PEAK_CELLS}}{row.best.samples_per_second:>{RATE_CELLS}.2f}"


def _words(row: SweepRow) -> str:
    """The configuration, or why there is none."""
    if row.best is not None:
        return row.best.candidate.words
    if row.answer is None:
        return row.error
    ending = " ".join(ending_words(row.answer).split())
    return "; ".join([ending, *map(remedy_words, row.answer.remedies[:1])])


def _summary(answer: Sweep) -> Text:
    left = [row for row in answer.rows if row.best is None]
    if not left:
        return Text.assemble(("✓ ALL FIT", "bold green"), f"  {len(answer.rows)} of {len(answer.rows)}")
    return Text.assemble(("✗ NO ANSWER", "bold red"), f"  for {len(left)} of {len(answer.rows)}")
