"""Tables of the docs that are made of the code, and the words of the rest.

A table stands between ``<!-- begin: KIND NAME -->`` and ``<!-- end: KIND NAME -->``. ``python -m tests.support.pages``
writes all of them anew, and says how many words each page has beside them.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from typer.main import get_command

from memplan.cli.app import typer_app
from memplan.contract.fields import descriptions
from memplan.findings import rules
from memplan.hardware.profile import GpuProfile
from memplan.job.options import OPTIONS, OptionField
from memplan.project.keys import JOB, ONCE, SHARED
from memplan.project.values import TYPES
from tests.runtime.metrics import exported

DOCS = Path(__file__).parents[2] / "docs"
AGAIN = "python -m tests.support.pages"
GENERATED = re.compile(r"<!-- begin: (?P<what>.*?) -->\n.*?<!-- end: [^>]*-->", re.DOTALL)
"""A part that some program wrote; those of benchmarks are written by the benchmark that they name."""
PAGES = {
    "estimate": "usage.md", "batch": "recommend.md#the-largest-batch", "init": "project.md", "gpus": "hardware.md",
    "open": "diff.md#saved-results", "report": "diff.md#saved-results", "presets": "targets.md",
    "formula": "textbook.md#memplan-formula", "explain": "errors-and-exit-codes.md#findings", "schema": "usage.md#json",
}  # fmt: skip
"""Command → its page, where that is not called like the command."""
TABLES: dict[str, Callable[[str], Iterator[Sequence[str]]]] = {}
"""Kind → the rows of its table, of what is named, the head first."""
_COMMANDS: dict[str, Any] = get_command(typer_app()).commands  # type: ignore[attr-defined]
"""Name → command."""


def words() -> dict[str, int]:
    """Return how many words each page has beside what is generated; the list of features is left out."""
    pages = (page for page in sorted(DOCS.glob("*.md")) if page.name != "features.md")
    return {page.name: len(GENERATED.sub("", page.read_text()).split()) for page in pages}


def renewed(text: str) -> str:
    """Return a page with its tables made anew."""
    return GENERATED.sub(_renewed, text)


def named() -> set[str]:
    """Return every table that should stand in some page."""
    of_commands = {f"options {name}" for name in _COMMANDS if len(list(_options(name))) > 2}
    of_code = {"commands", "job", "project", "metrics", "alerts", "profile", "packages"}
    return of_commands | of_code | {"findings estimate", "findings monitor"}


def _renewed(part: re.Match[str]) -> str:
    kind, _, name = part["what"].partition(" ")
    if kind not in TABLES:
        return part[0]
    head, *rows = TABLES[kind](name)
    lines = [" | ".join(row) for row in (head, ["---"] * len(head), *rows)]
    table = "".join(f"| {line} |\n" for line in lines)
    return f"<!-- begin: {part['what']} -->\n{table}<!-- end: {part['what']} -->"


def _options(command: str) -> Iterator[Sequence[str]]:
    """Those that are not of a job and not told of ``estimate``."""
    yield "option", "takes", "does", "default"
    known = {} if command == "estimate" else _helps("estimate")
    of_job = {f"--{option.called}" for option in OPTIONS.values()} | {"--help", "--help-all"}
    for parameter in _COMMANDS[command].params:
        text = getattr(parameter, "help", None) or ""
        names = [name for name in parameter.opts if name.startswith("-")]
        if not names or of_job & set(names) or all(known.get(name) == text for name in names):
            continue
        does, _, default = text.removesuffix(")").partition(" (default: ")
        takes = f"`{parameter.metavar}`".replace("|", "\\|") if parameter.metavar else ""
        yield ", ".join(f"`{name}`" for name in sorted(names)), takes, does.removesuffix("."), default


def _helps(command: str) -> dict[str, str]:
    return {name: getattr(each, "help", "") for each in _COMMANDS[command].params for name in each.opts}


def _commands(_: str) -> Iterator[Sequence[str]]:
    yield "command", "does", "page"
    for name, command in _COMMANDS.items():
        page = PAGES.get(name, f"{name}.md")
        does = command.help.splitlines()[0].removesuffix(".")
        yield f"`memplan {name}`", does, f"[{page.partition('.')[0]}]({page})"


def _job(_: str) -> Iterator[Sequence[str]]:
    yield "option", "takes", "does", "default"
    yield from map(_job_option, OPTIONS.values())


def _job_option(option: OptionField) -> Sequence[str]:
    takes = " ".join(option.choices) or option.metavar or ""
    does = option.summary.removesuffix(".") + _more(option.about.page)
    default = "off" if option.kind is bool else option.default_in_words
    return f"`--{option.called}`", f"`{takes}`" if takes else "", does, default


def _more(page: str) -> str:
    """Return a link to what tells more, as the usage page has it."""
    file, _, anchor = page.partition("#")
    title = (anchor or file.removesuffix(".md")).replace("-", " ").strip()
    return f" ([{title}]({page.removeprefix('usage.md')}))" if page else ""


def _findings(of: str) -> Iterator[Sequence[str]]:
    yield "code", "finding", "when"
    for rule in getattr(rules, of.upper()).values():
        yield rule.code, rule.title, rule.meaning


def _project(_: str) -> Iterator[Sequence[str]]:
    yield "key", "stands", "is"
    own = [key for key in JOB if key not in SHARED and key not in _called()]
    for where, keys in (("at the top", ONCE), ("in a job, or at the top", SHARED), ("in a job", own)):
        for key in keys:
            yield f"`{key}`", where, TYPES[key][1]


def _called() -> set[str]:
    return {option.called for option in OPTIONS.values()}


def _metrics(_: str) -> Iterator[Sequence[str]]:
    yield "metric", "kind", "is"
    for family in exported.families():
        yield f"`{family.name}`", family.type, family.documentation


def _alerts(_: str) -> Iterator[Sequence[str]]:
    yield "alert", "when"
    for alert in exported.rules():
        lasting = f", for {alert['for']}" if "for" in alert else ""
        yield f"`{alert['alert']}`", f"`{alert['expr']}`{lasting}"


def _profile(_: str) -> Iterator[Sequence[str]]:
    yield "key", "is"
    for key, text in descriptions(GpuProfile).items():
        if key != "name":
            yield f"`{key}`", _one_line(text)


def _packages(_: str) -> Iterator[Sequence[str]]:
    yield "package", "is"
    for module in sorted((DOCS.parent / "memplan").glob("*/__init__.py")):
        text = ast.get_docstring(ast.parse(module.read_text())) or ""
        yield f"`memplan/{module.parent.name}`", _one_line(text.partition("\n\n")[0])


def _one_line(text: str) -> str:
    return " ".join(text.replace("``", "`").split()).removesuffix(".")


TABLES |= {
    "options": _options, "commands": _commands, "job": _job, "findings": _findings, "project": _project,
    "metrics": _metrics, "alerts": _alerts, "profile": _profile, "packages": _packages,
}  # fmt: skip


def main() -> None:
    """Write the pages anew and count their words."""
    for page in DOCS.glob("*.md"):
        page.write_text(renewed(page.read_text()))
    counted = words()
    counted["in all"] = sum(counted.values())
    sys.stdout.writelines(f"{count:6,}  {name}\n" for name, count in counted.items())


if __name__ == "__main__":
    main()
