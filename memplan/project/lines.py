"""Where the tables of jobs begin in the text of a project file: what annotations point at."""

import re
from collections.abc import Iterator

_NO_HEADERS = re.compile(
    r"#[^\n]*"
    r'|"{3}(?:\\.|[^\\])*?"{3}'
    r"|'{3}.*?'{3}"
    r'|"(?:\\.|[^\\"\n])*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
"""Comments and strings, in all of which a header would be none and may stand what looks like the others."""
_HEADER = re.compile(r"\s*\[\[\s*(?:tool\s*\.\s*memplan\s*\.\s*)?job\s*\]\]")


def job_lines(text: str, jobs: int) -> tuple[int, ...]:
    """The line of each ``[[job]]`` or ``[[tool.memplan.job]]``, from 1.

    Args:
        text: Of the file.
        jobs: How many jobs it has. Where the headers are not as many, jobs are written otherwise, and every line is 1.
    """
    found = tuple(_headers(_NO_HEADERS.sub(lambda part: "\n" * part[0].count("\n"), text)))
    return found if len(found) == jobs else (1,) * jobs


def _headers(text: str) -> Iterator[int]:
    for number, line in enumerate(text.split("\n"), start=1):
        if _HEADER.match(line):
            yield number
