"""``memplan explain``: what a finding means and what to do about it."""

from typing import Annotated

import typer

from memplan.cli.console import write_lines, write_plain
from memplan.errors import UsageError


def explain(
    code: Annotated[
        str | None, typer.Argument(metavar="CODE", help="A finding such as MP001 or MA001.", show_default=False)
    ] = None,
) -> None:
    """Explain a finding; without a code, list them all."""
    from rich.text import Text

    from memplan.findings.rules import RULES
    from memplan.report.draw.layout import paragraphs

    if code is None:
        write_plain("".join(f"{rule.code}  {rule.title}\n" for rule in RULES.values()))
        return
    rule = RULES.get(code.upper())
    if rule is None:
        kinds = "MP… are of estimate and gate, MA… of audit, MM… of monitor, ML… of leak detection"
        raise UsageError(f"there is no finding '{code}'", hint=f"{kinds}; memplan explain lists them all")
    title = Text(f"{rule.code}  {rule.title}", style="bold")
    write_lines([title, *paragraphs("", [rule.meaning, rule.remedy], 80)])
