"""Comments that excuse findings: ``# memplan: ignore[MA001]`` and ``# noqa: MA001``.

A comment excuses what is meant on its line; of an expression over several lines, any of them will do. Only codes of the
audit count, and a bare ``# noqa`` excuses everything, as it does for other tools.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from memplan.audit.records import Hit
from memplan.findings.rules import AUDIT, UNUSED

_OURS = re.compile(r"#\s*memplan:\s*ignore\[([^\]]*)\]", re.IGNORECASE)
_NOQA = re.compile(r"#\s*noqa(?::\s*([A-Z]+\d+(?:[,\s]+[A-Z]+\d+)*))?", re.IGNORECASE)
_CODE = re.compile(r"\bMA\d+\b", re.IGNORECASE)
ALL = "*"
"""What a bare ``# noqa`` names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excused:
    """A source text's findings after its comments have been read."""

    hits: tuple[Hit, ...]
    """Those that stand, unused comments among them, in the order of the text."""
    suppressed: int
    """How many do not."""


def excuse(hits: Sequence[Hit], comments: Mapping[int, str], wanted: Collection[str]) -> Excused:
    """Take out what comments excuse, and tell of comments that excuse nothing.

    Of rules that were not looked for (``wanted``) nobody knows whether a comment has its use.
    """
    named = {line: codes for line, text in comments.items() if (codes := codes_of(text))}
    used: set[tuple[int, str]] = set()
    kept = []
    for each in hits:
        by = [
            (line, name)
            for line in range(each.line, each.end_line + 1)
            for name in (each.code, ALL)
            if name in named.get(line, ())
        ]
        used.update(by)
        if not by:
            kept.append(each)
    suppressed = len(hits) - len(kept)
    if UNUSED in wanted:
        for line, codes in named.items():
            idle = [each for each in codes if each != ALL and (line, each) not in used and _can_tell(each, wanted)]
            kept += [_unused(line, comments[line], each) for each in idle if UNUSED not in codes]
    return Excused(
        hits=tuple(sorted(kept, key=lambda each: (each.line, each.column, each.code))), suppressed=suppressed
    )


def codes_of(comment: str) -> tuple[str, ...]:
    """Rules of the audit that a comment names."""
    ours = [code for found in _OURS.finditer(comment) for code in _CODE.findall(found[1])]
    others = [found[1] for found in _NOQA.finditer(comment)]
    named = [*ours, *(code for text in others if text for code in _CODE.findall(text))]
    return tuple(dict.fromkeys([code.upper() for code in named] + ([ALL] if None in others else [])))


def _can_tell(code: str, wanted: Collection[str]) -> bool:
    return code in wanted or code not in AUDIT


def _unused(line: int, comment: str, code: str) -> Hit:
    unknown = "" if code in AUDIT else ", which is no rule of the audit"
    return Hit(
        code=UNUSED, line=line, column=0, end_line=line, end_column=max(1, len(comment)),
        message=f"the comment names {code}{unknown}; nothing is excused by it",
    )  # fmt: skip
