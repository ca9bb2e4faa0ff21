"""The frame of the page: template, style and scripts in one file, under a policy that lets nothing else in."""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final

from memplan.report.layout import clean

SCRIPTS: Final = ("base", "timeline", "map", "treemap", "owners", "main")
"""In the order in which they need one another."""


def assemble(context: dict[str, Any], document: Mapping[str, Any]) -> str:
    """Write a page.

    Args:
        context: What the template shows.
        document: The JSON that the page carries.

    Returns:
        HTML that loads nothing. Its Content-Security-Policy names the one style and the one script by their hashes.
    """
    style, script = _asset("style.css"), _script()
    shown = context | {"style": style, "script": script, "data": embedded(document)}
    return str(_template().render(shown, policy=policy(styles=[style], scripts=[script])).rstrip() + "\n")


def policy(*, styles: Sequence[str], scripts: Sequence[str] = ()) -> str:
    """A Content-Security-Policy that lets in these texts, by their hashes, and nothing else."""
    kinds = (("style-src", styles), ("script-src", scripts))
    named = (f"{kind} {' '.join(_hash(text) for text in texts)}" for kind, texts in kinds if texts)
    return "; ".join(["default-src 'none'", *named, "base-uri 'none'", "form-action 'none'"])


def embedded(document: Mapping[str, Any]) -> str:
    """JSON that may stand inside of ``<script>``: no ``<`` can end it."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


@cache
def _template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("memplan.report.html", "assets")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_shown
    )
    return environment.get_template("page.html.j2")


def _shown(value: object) -> object:
    """Text from outside without control characters and direction marks; whatever is markup already is left alone."""
    return clean(value) if type(value) is str else value


@cache
def _script() -> str:
    parts = "\n".join(_asset(f"{name}.js") for name in SCRIPTS)
    return f"(() => {{\n{parts}}})();\n"


@cache
def _asset(name: str) -> str:
    return (files("memplan.report.html") / "assets" / name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode('utf-8')).digest()).decode('ascii')}'"
