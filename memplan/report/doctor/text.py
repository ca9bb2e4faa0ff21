"""The text report of ``memplan doctor``: what is there, what is not, and what that costs."""

from collections.abc import Iterator

from rich.text import Text

from memplan.doctor.records import Checkup, DoctorCheck
from memplan.report.draw.layout import bounded, hanging, stacked
from memplan.text import clean

_MARKS = {"there": ("✓", "green"), "absent": ("-", "dim"), "lost": ("✗", "bold red")}
_NAME_CELLS = 10


def render(checkup: Checkup, *, width: int = 80) -> list[Text]:
    """Write a checkup as lines of styled text."""
    width = bounded(width)
    groups: dict[str, list[Text]] = {}
    for check in checkup.checks:
        groups.setdefault(check.group, [Text(check.group, style="bold")]).extend(_lines(check, width))
    return stacked([*groups.values(), [_summary(checkup)]], width)


def _lines(check: DoctorCheck, width: int) -> Iterator[Text]:
    mark, style = _MARKS[check.state]
    name = clean(check.name)
    said = clean(" · ".join(filter(None, (check.found, check.note))))
    if len(name) > _NAME_CELLS:
        # Paths stand alone, so that they can be copied.
        yield Text.assemble("  ", (mark, style), f" {name}")
        yield from map(Text, hanging(" " * 4, said, width))
        return
    first, *rest = hanging(f"  {mark} {name:<{_NAME_CELLS}} ", said, width)
    yield Text.assemble(first[:2], (first[2], style), first[3:])
    yield from map(Text, rest)


def _summary(checkup: Checkup) -> Text:
    if not checkup.lost:
        return Text.assemble(("✓ READY", "bold green"), "  nothing that memplan needs is missing")
    count = len(checkup.lost)
    missing = (
        f"{count} {'thing' if count == 1 else 'things'} that memplan needs {'is' if count == 1 else 'are'} missing"
    )
    return Text.assemble(("✗ NOT READY", "bold red"), f"  {missing}: estimates end as UNKNOWN")
