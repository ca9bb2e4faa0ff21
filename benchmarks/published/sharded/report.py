"""The CSV and the text of ``benchmarks/sharding.py``."""

import csv
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from memplan.units import GIB
from published.sharded.peers import COLUMNS
from published.sharded.records import Outcome

EAGER = "FSDP2, eager"
GOALS = {"active": 0.2, "reserved": 2.0, "all": 4.0}
"""Percent: of eager FSDP2 rows at most, and of all rows in the median."""
MODES = {True: "expandable", False: "native", None: ""}


def write_csv(path: Path, done: Iterable[Outcome]) -> None:
    """One line for each row of the table that ran on several GPUs."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            ["id", "source", "ranks", "kind", "metric", "measured", "allocated", "reserved_native",
             "reserved_expandable", "allocator", "error_percent", *COLUMNS, "torch", "carried", "left_out", "failure"]
        )  # fmt: skip
        writer.writerows(_cells(each) for each in done)


def _cells(each: Outcome) -> list[object]:
    row, peaks = each.row, each.peaks
    sizes = (peaks.allocated, peaks.reserved, peaks.expandable or "") if peaks else ("", "", "")
    error = each.error(each.predicted)
    return [
        row.id, row.source, row.ranks, row.kind, row.metric, row.measured, *sizes, MODES[row.expandable],
        "" if error is None else round(error, 4), *(each.peers.get(name, "") for name in COLUMNS),
        peaks.torch if peaks else "", each.carried, row.reason, each.failure,
    ]  # fmt: skip


def text(done: Sequence[Outcome]) -> Iterator[str]:
    """The lines that follow the machine's."""
    complete = [each for each in done if not each.row.reason]
    yield f"Of {len(done)} published rows of several GPUs, {len(complete)} are complete enough. GiB for each rank."
    yield ""
    heads = f"{'measured':>9}{'allocated':>10}{'native':>9}{'expand.':>9}{'error':>9}"
    yield f"{'row':<42}{'kind':<14}{'counter':<11}{heads}"
    for each in complete:
        yield from _line(each)
    yield ""
    yield "Errors are of allocated bytes or, where the figure is reserved memory, of the mode of the allocator that the"
    yield "run's launcher sets; rows marked * are benchmarks/accuracy.py's. 'one GPU' is labelled with four and runs on"
    yield "one, as its own configuration says."
    yield ""
    yield from _modes(complete)
    yield from _others(complete)
    yield from _goals(complete)
    yield ""
    yield "Peers on the same rows, and how far off what they say is (states alone leave activations out):"
    yield from _peers(complete)
    yield ""
    yield f"Left out: {len(done) - len(complete)} rows, each for a reason decided before any error was looked at:"
    counts = Counter((each.row.source, each.row.reason) for each in done if each.row.reason)
    yield from (f"{count:>4}  {source[:36]:<38}{reason}" for (source, reason), count in counts.items())


def _line(each: Outcome) -> Iterator[str]:
    row, peaks = each.row, each.peaks
    name = row.id if len(row.id) <= 38 else f"{row.id[:12]}…{row.id[-25:]}"
    start = f"{name + ('*' if each.carried else ''):<42}{row.kind:<14}{row.metric:<11}{row.measured / GIB:>9.3f}"
    if peaks is None:
        yield f"{start}  {each.failure}"
        return
    sizes = (peaks.allocated, peaks.reserved, peaks.expandable)
    columns = zip(sizes, (10, 9, 9), strict=True)
    cells = "".join(f"{size / GIB:>{width}.3f}" if size else " " * width for size, width in columns)
    yield f"{start}{cells}{each.error(each.predicted):>+8.2f}%"


def _modes(complete: Sequence[Outcome]) -> Iterator[str]:
    """What the allocator's mode decides, where the figure is reserved memory."""
    both = [each for each in complete if each.peaks and each.row.metric == "reserved"]
    for name, sizes in (
        ("expandable, as the launcher sets it", [each.peaks.expandable for each in both if each.peaks]),
        ("PyTorch's default options", [each.peaks.reserved for each in both if each.peaks]),
    ):
        errors = [each.error(size) or 0.0 for each, size in zip(both, sizes, strict=True)]
        yield f"reserved, {name:<38}" + "  ".join(f"{error:+.2f} %" for error in errors)


def _others(complete: Sequence[Outcome]) -> Iterator[str]:
    """What another release of torch, or another reading of the source, makes of a row."""
    for each in complete:
        for what, peaks in each.others.items():
            size = peaks.expandable if each.row.expandable else peaks.reserved
            yield (
                f"{each.row.id} otherwise: allocated {peaks.allocated / GIB:.3f}, reserved {size / GIB:.3f}, "
                f"{each.error(size):+.2f} % ({what})"
            )


def _errors(complete: Iterable[Outcome]) -> list[float]:
    return [abs(error) for each in complete if (error := each.error(each.predicted)) is not None]


def _goals(complete: Sequence[Outcome]) -> Iterator[str]:
    eager = [each for each in complete if each.row.kind == EAGER]
    active = _errors(each for each in eager if each.row.metric in ("active", "allocated"))
    reserved = _errors(each for each in eager if each.row.metric == "reserved")
    yield f"goal, eager FSDP2, active at most {GOALS['active']} %: " + _most(active, GOALS["active"])
    yield f"goal, eager FSDP2, reserved at most {GOALS['reserved']} %: " + _most(reserved, GOALS["reserved"])
    sharded = _errors(each for each in complete if each.row.kind != "one GPU")
    for name, errors in (("all complete rows", _errors(complete)), ("those that are really shared", sharded)):
        said = f"median {statistics.median(errors):.3f} %, worst {max(errors):.2f} %" if errors else "none"
        yield f"goal, {name}, median at most {GOALS['all']} %: {len(errors)} rows, {said}"


def _most(errors: Sequence[float], goal: float) -> str:
    if not errors:
        return "no row of the table publishes it"
    return f"{len(errors)} rows, worst {max(errors):.2f} %, {'met' if max(errors) <= goal else 'missed'}"


def _peers(complete: Sequence[Outcome]) -> Iterator[str]:
    for name, meaning in COLUMNS.items():
        said = [each for each in complete if name in each.peers]
        errors = [each.error(each.peers[name]) or 0.0 for each in said]
        yield f"{name:<21}" + "  ".join(f"{error:+.1f} %" for error in errors) + f"   ({meaning})"
        ours = [error for each in said if (error := each.error(each.predicted)) is not None]
        yield f"{'  memplan, the same':<21}" + "  ".join(f"{error:+.1f} %" for error in ours)
