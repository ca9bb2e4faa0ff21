"""Published runs and answers as text."""

from collections import Counter
from collections.abc import Iterator, Sequence

from recommended.compare import Compared, Way
from recommended.report import machine


def text(done: Sequence[Compared]) -> str:
    """The whole page."""
    return "\n".join([*machine(), *HEAD, "", *(line for each in done for line in lines(each)), *_conclusion(done), ""])


HEAD = (
    "recommend is told the model, batch, cards and which numerics may change, not how a source made it fit. Both ways",
    "are traced and timed by memplan; within 1 % in speed is the same. Published figures are of other code. Some",
    "searches ran beside other work: in their time a quiet machine proves more.",
)


def lines(each: Compared) -> Iterator[str]:
    """One run."""
    run = each.run
    yield f"{run.name}: {each.verdict.upper()}  ({each.ending}, {each.seconds:.0f} s)"
    yield f"  {run.source}: {run.figure}"
    yield f"  memplan recommend {' '.join(run.asked)}"
    yield _way("published", each.ran)
    yield _way("recommended", each.best)
    yield f"  why: {each.why}"
    if run.note:
        yield f"  note: {run.note}"
    if each.problem:
        yield f"  {each.problem}"
    yield ""


def _way(title: str, way: Way | None) -> str:
    if way is None:
        return f"  {title:12} -"
    fits = "fits" if way.fits else "does not fit"
    return f"  {title:12}{way.gib:7.2f} GiB {way.rate:9.3f} samples/s  {fits:12}  {way.words}"


def _conclusion(done: Sequence[Compared]) -> Iterator[str]:
    found = Counter(each.verdict for each in done)
    yield f"{len(done)} runs: {found['same']} same, {found['better']} better, {found['worse']} worse"
