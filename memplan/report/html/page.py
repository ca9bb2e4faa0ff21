"""The frame of the page: template, style and scripts in one file, under a policy that lets nothing else in."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from memplan.page.policy import asset, embedded, policy, script
from memplan.text import clean

SCRIPTS: Final = ("base", "timeline", "map", "treemap", "owners", "main")
"""In the order in which they need one another."""


def assemble(context: dict[str, Any], document: Mapping[str, Any], *, template: str = "page.html.j2") -> str:
    """Write a page of a template, its context and the JSON that it carries; it loads nothing.

    Its Content-Security-Policy names the one style and the one script by their hashes.
    """
    style, code = _style(), _script()
    shown = context | {"style": style, "script": code, "data": embedded(document)}
    return str(_template(template).render(shown, policy=policy(styles=[style], scripts=[code])).rstrip() + "\n")


@cache
def _template(name: str) -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("memplan.report.html", "assets")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_shown
    )
    return environment.get_template(name)


def _shown(value: object) -> object:
    """Text from outside without control characters and direction marks; whatever is markup already is left alone."""
    return clean(value) if type(value) is str else value


@cache
def _style() -> str:
    return asset("memplan.page", "page.css") + asset("memplan.report.html", "style.css")


@cache
def _script() -> str:
    own = (asset("memplan.report.html", f"{name}.js") for name in SCRIPTS)
    return script(asset("memplan.page", "helpers.js"), *own)
