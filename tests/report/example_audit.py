"""An audit made by hand: findings of every priority, a notebook, a file that is no Python."""

from collections.abc import Callable

from memplan.audit.inspect import SEVERITIES
from memplan.audit.records import Audit, FileAudit, Unread
from memplan.findings.records import Finding, Place
from memplan.findings.rules import AUDIT

OUTSIDE = (
    "train.py", "src/eval.py", "notes.ipynb", "total grows by loss with its graph, and lives on after the step",
    "        total += loss", "syntax error: invalid syntax",
)  # fmt: skip
"""Every text of the example that comes from outside of memplan."""
DIFF = "--- a/train.py\n+++ b/train.py\n@@ -41 +41 @@\n-        total += loss\n+        total += loss.detach()\n"


def example(text: Callable[[str], str] = str) -> Audit:
    """The example, each of its ``OUTSIDE`` texts replaced by another."""
    train, evaluate, notes, message, source, problem = map(text, OUTSIDE)

    def finding(code: str, file: str, line: int, cell: int | None = None, diff: str = "") -> Finding:
        place = Place(file=file, cell=cell, line=line, column=9, end_line=line, end_column=22, text=source)
        rule = AUDIT[code]
        return Finding(
            code=code, severity=SEVERITIES[rule.priority], message=message, place=place, fix=rule.remedy, diff=diff
        )  # fmt: skip

    files = (
        FileAudit(
            file=notes,
            lines=12,
            findings=(finding("MA071", notes, 2, 3),),
            suppressed=0,
            tools=frozenset(),
            about_torch=True,
            unread=(Unread(file=notes, cell=2, line=1, problem=problem),),
        ),
        FileAudit(
            file=evaluate,
            lines=90,
            findings=(finding("MA011", evaluate, 7), finding("MA047", evaluate, 9)),
            suppressed=1,
            unread=(),
            tools=frozenset({"pinned memory"}),
            about_torch=True,
        ),
        FileAudit(
            file=train,
            lines=1200,
            findings=(finding("MA001", train, 41, diff=DIFF), finding("MA001", train, 43)),
            suppressed=0,
            unread=(),
            tools=frozenset({"pinned memory", "mixed precision"}),
            about_torch=True,
        ),
    )
    return Audit(paths=("src", "notes.ipynb"), files=files, rules=tuple(AUDIT), seconds=1.25)


EMPTY = Audit(paths=("src",), files=(), rules=tuple(AUDIT))
