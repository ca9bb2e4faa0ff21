"""The table of a job's options in docs/usage.md, made of the fields of ``JobSpec``: run it to write the page anew."""

import re
from pathlib import Path

from memplan.job.options import OPTIONS, OptionField

PAGE = Path(__file__).parents[2] / "docs" / "usage.md"
AGAIN = "python -m tests.support.options_table"
_TABLE = re.compile(r"(?<=\n## Options of a job\n).*?(\n\| option \|[^\n]*\n.*?\n)(?=\n)", re.DOTALL)


def table() -> str:
    """Return the table as the page has it."""
    rows = ["| option | takes | does | default |", "|---|---|---|---|", *map(_row, OPTIONS.values())]
    return "\n" + "\n".join(rows) + "\n"


def shown() -> str:
    """Return the table that the page shows."""
    return _table(PAGE.read_text())[1]


def _table(page: str) -> re.Match[str]:
    found = _TABLE.search(page)
    assert found is not None
    return found


def _row(option: OptionField) -> str:
    takes = " ".join(option.choices) or option.metavar or ""
    takes = f"`{takes}`" if takes else ""
    does = option.summary.removesuffix(".") + _more(option.about.page)
    default = "off" if option.kind is bool else option.default_in_words
    return f"| `--{option.called}` | {takes} | {does} | {default} |"


def _more(page: str) -> str:
    """Return a link to what tells more, as the usage page has it."""
    file, _, anchor = page.partition("#")
    words = (anchor or file.removesuffix(".md")).replace("-", " ").strip()
    return f" ([{words}]({page.removeprefix(PAGE.name)}))" if page else ""


if __name__ == "__main__":
    text = PAGE.read_text()
    begin, end = _table(text).span(1)
    PAGE.write_text(text[:begin] + table() + text[end:])
