"""The frames of pages: template, style and scripts in one file that lets nothing else in; and one without scripts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from html import escape
from typing import Any, Final

from memplan.page.policy import asset, embedded, policy, script
from memplan.report.draw import svg
from memplan.text import clean

SCRIPTS: Final = ("base", "timeline", "map", "treemap", "owners", "main")
"""In the order in which they need one another."""
STYLE = """
  :root { color-scheme: light dark }
  body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; background: #fff }
  h1 { font-size: 1.3rem; line-height: 1.25; overflow-wrap: anywhere }
  svg { width: 100%; height: auto }
  pre { overflow-x: auto }
  .blocks { overflow-x: auto }
  table { border-collapse: collapse; width: 100%; margin: 1.2rem 0; font-size: .95rem }
  th, td { padding: .3rem .6rem; border-bottom: 1px solid #8884; text-align: left; vertical-align: top }
  th { font-weight: 500 }
  .figure { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums }
  p, th, .saved, footer { color: #57606a; margin: .2rem 0 }
  p.verdict { color: inherit; font-size: 1.3rem; font-weight: 600 }
  @media (prefers-color-scheme: dark) { body { background: #0d1117 } p, th, .saved, footer { color: #9198a1 } }
  @media (max-width: 40rem) {
    body { margin: 1rem auto } table { font-size: .78rem } th, td { padding: .3rem .2rem; overflow-wrap: anywhere }
    svg text { font-size: 16px }
  }
"""


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


def page(title: str, body: Iterable[str], *, picture_style: str) -> str:
    """An HTML document that needs nothing else, of a plain title and lines of HTML below it.

    ``picture_style`` is CSS of the picture among them (``memplan.report.draw.svg.picture``): the policy names it, too.
    """
    allowed = policy(styles=[STYLE, svg.STYLE + picture_style])
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            '<head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{allowed}">',
            f"<title>{text(title)}</title>",
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<style>{STYLE}</style></head>",
            f"<body><h1>{text(title)}</h1>",
            *body,
            "</body></html>\n",
        ]
    )


def text(plain: str) -> str:
    """Text from outside, fit to stand in a page."""
    return escape(clean(plain))


def table(words: Sequence[str], figures: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table whose first columns are words, and the others figures."""
    kinds = [*([""] * len(words)), *([' class="figure"'] * len(figures))]

    def row(tag: str, cells: Sequence[str]) -> str:
        made = (f"<{tag}{kind}>{text(cell)}</{tag}>" for kind, cell in zip(kinds, cells, strict=True))
        return f"<tr>{''.join(made)}</tr>"

    yield f"<table><thead>{row('th', (*words, *figures))}</thead><tbody>"
    yield from (row("td", cells) for cells in rows)
    yield "</tbody></table>"
