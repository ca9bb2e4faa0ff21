"""``memplan explain``: what a finding means and what to do about it."""

from typing import Annotated

import typer

from memplan.cli.console import write_lines, write_plain
from memplan.errors import UsageError


def explain(
    code: Annotated[
        str | None, typer.Argument(metavar="CODE", help="A finding such as MP001.", show_default=False)
    ] = None,
) -> None:
    """Explain a finding; without a code, list them all."""
    from rich.text import Text

    from memplan.report.layout import paragraphs
    from memplan.rules import RULES

    if code is None:
        write_plain("".join(f"{rule.code}  {rule.title}\n" for rule in RULES.values()))
        return
    rule = RULES.get(code.upper())
    if rule is None:
        raise UsageError(f"there is no finding '{code}'", hint=f"findings are {', '.join(RULES)}")
    title = Text(f"{rule.code}  {rule.title}", style="bold")
    write_lines([title, *paragraphs("", [rule.meaning, rule.remedy], 80)])
