"""The text report of ``memplan batch``: for each device the answer, and the peaks around it."""

from collections.abc import Iterable, Iterator

from rich.text import Text

from memplan.hardware.profile import GpuProfile
from memplan.plan.batch.records import BatchAnswer, BatchPoint, BatchTail
from memplan.report.draw.layout import bounded, hanging, percent, stacked
from memplan.text import clean, shorten
from memplan.units import format_bytes

NAMES = {"batch_size": "batch size", "seq_len": "sequence length"}
OPTIONS = {"batch_size": "--batch-size", "seq_len": "--seq-len"}
ENDINGS = {
    "exact": "every storage of the trace there has the bytes that two traces foretold",
    "confirmed": "traced there and at one more; some storage differs from what two traces foretold",
    "refused": "traced there; one more is refused by the program itself",
    "limit": "the largest that was traced and fits: the search ran out of traces, a larger one may fit too",
    "none": "the smallest that was traced does not fit either",
}
"""How an answer is known."""
FIGURE_CELLS = 12


def render(
    target: str,
    found: Iterable[tuple[GpuProfile, BatchAnswer]],
    *,
    width: int = 80,
    quiet: bool = False,
    explain: bool = False,
) -> list[Text]:
    """Write devices and their answers as lines of styled text; ``quiet`` only the verdicts."""
    width = bounded(width)
    if quiet:
        return [verdict(profile, answer) for profile, answer in found]
    foot = [Text(shorten(target, width), style="dim")]
    return stacked([*(_block(profile, answer, width, explain=explain) for profile, answer in found), foot], width)


def verdict(profile: GpuProfile, answer: BatchAnswer) -> Text:
    """The answer in one line."""
    name = f"  {clean(profile.name)}"
    if not answer.value:
        words, style = ("? NOT FOUND", "bold yellow") if answer.ended == "limit" else ("✗ NOTHING FITS", "bold red")
        return Text.assemble((words, style), name)
    words = f"{OPTIONS[answer.variable]} {answer.value}"
    room = format_bytes(answer.limit_bytes)
    return Text.assemble(
        (f"✓ {words}", "bold green"), f"{name}  {format_bytes(answer.device_bytes)} of {room} for the step"
    )


def _block(profile: GpuProfile, answer: BatchAnswer, width: int, *, explain: bool) -> list[Text]:
    heading = f"{NAMES[answer.variable]:>15}{'peak':>{FIGURE_CELLS}}"
    turns = ", ".join(f"{turn.value} {turn.verdict.upper()}" for turn in answer.turns)
    return [
        verdict(profile, answer),
        *([Text(f"  then {turns}", style="yellow")] if turns else []),
        *(Text(line) for tail in answer.tails for line in _lines(_chance(tail), width)),
        *(Text(line, style="dim") for words in _remarks(answer, explain=explain) for line in _lines(words, width)),
        Text(heading, style="dim"),
        *(
            Text(f"{point.value:>15}{format_bytes(point.device_bytes):>{FIGURE_CELLS}}{_kind(point, answer)}")
            for point in answer.curve
        ),
    ]


def _chance(tail: BatchTail) -> str:
    """Of drawn lengths."""
    risk = tail.risk
    if risk is None:
        return f"at {tail.value} nobody knows what drawn lengths take"
    chance = f"{percent(risk.chance)} [{percent(risk.low_chance)} to {percent(risk.high_chance)}]"
    return f"at {tail.value} {chance} run out of memory within {risk.steps:,} steps of {clean(risk.lengths)}"


def _lines(words: str, width: int) -> Iterable[str]:
    return hanging("  ", words, width)


def _kind(point: BatchPoint, answer: BatchAnswer) -> str:
    within = not answer.limit_bytes or point.device_bytes <= answer.limit_bytes
    lost = "  its upper end does not fit" if within else "  does not fit"
    return ("" if point.fits else lost) + ("" if point.traced else "  by its sizes")


def _remarks(answer: BatchAnswer, *, explain: bool) -> Iterator[str]:
    traced = ", ".join(map(str, sorted(answer.traced)))
    yield f"{ENDINGS[answer.ended]} (traced: {traced}; {answer.seconds:.1f} s)"
    if foretold := [str(turn.value) for turn in answer.turns if not turn.traced]:
        yield f"{', '.join(foretold)} by its sizes, not traced"
    if answer.refused:
        yield f"at {answer.value + 1}: {clean(answer.refused)}"
    if explain and answer.value:
        yield f"{answer.differing} storages of the trace at the answer have other bytes than were foretold"
        yield "a size between traces is a polynomial of the value, storage by storage; the peak is its replay"
