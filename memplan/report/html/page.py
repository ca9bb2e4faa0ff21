"""The frame of all pages: heading, tools, style and scripts in one file that lets nothing else in."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import Any, Final

from memplan.page.colours import CATEGORIES, PLACES, variables
from memplan.page.policy import asset, embedded, policy, script
from memplan.report.draw import svg
from memplan.text import clean

SCRIPTS: Final = ("base", "timeline", "map", "treemap", "owners", "main")
"""In the order in which they need one another."""
_PLAIN: Final = ("base", "main")
"""Those of a page without anything that moves: its theme and its JSON."""
PREDICTED: Final = "GPU memory is predicted, not measured"
"""What most pages rest on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFrame:
    """What stands around the content of every page."""

    kind: str
    """The command that it comes from."""
    title: str
    """Plain text."""
    versions: Mapping[str, str]
    """Of ``memplan`` and, where it ran, ``torch``."""
    rests_on: str = PREDICTED
    """Where its figures come from."""


def assemble(
    frame: PageFrame,
    context: Mapping[str, Any],
    document: Mapping[str, Any],
    *,
    template: str = "page.html.j2",
    scripts: Sequence[str] = SCRIPTS,
    picture_style: str = "",
) -> str:
    """Write a page of a template, its context and the JSON that it carries; it loads nothing.

    Its Content-Security-Policy names the one style and the one script by their hashes. ``picture_style`` is CSS of a
    picture in it (``memplan.report.draw.svg.picture``).
    """
    style = _style() + (svg.STYLE + picture_style if picture_style else "")
    code = _script(tuple(scripts))
    shown = {**context, "frame": frame, "style": style, "script": code, "data": embedded(document)}
    return str(_template(template).render(shown, policy=policy(styles=[style], scripts=[code])).rstrip() + "\n")


def page(frame: PageFrame, body: Iterable[str], document: Mapping[str, Any], *, picture_style: str = "") -> str:
    """Write a page whose content is lines of HTML below the title, with the JSON that it carries."""
    context = {"body": "\n".join(body)}
    return assemble(frame, context, document, template="frame.html.j2", scripts=_PLAIN, picture_style=picture_style)


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
    swatches = "".join(f".swatch.{name} {{ background: var(--{name}) }}\n" for name in (*CATEGORIES, *PLACES))
    return variables() + asset("memplan.page", "page.css") + swatches + asset("memplan.report.html", "style.css")


@cache
def _script(names: tuple[str, ...]) -> str:
    own = (asset("memplan.report.html", f"{name}.js") for name in names)
    return script(asset("memplan.page", "helpers.js"), *own)


def text(plain: str) -> str:
    """Text from outside, fit to stand in a page."""
    return escape(clean(plain))


def verdict(word: str, figures: str, kind: str) -> str:
    """The answer in one line: ``✓ FEASIBLE`` in the colour of ``fits``, ``tight`` or ``oom``, and its figures."""
    return f'<p class="verdict"><span class="word {kind}">{text(word)}</span> <span>{text(figures)}</span></p>'


def remark(words: str) -> str:
    """A line below the answer."""
    return f'<p class="muted">{text(words)}</p>'


def section(title: str, *parts: str) -> str:
    """A part of the page with its heading."""
    return "\n".join([f"<section><h2>{text(title)}</h2>", *parts, "</section>"])


def table(words: Sequence[str], figures: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table whose first columns are words, and the others figures; without heads it has none."""
    heads = (*words, *figures)
    kinds = [*([' class="path"'] * len(words)), *([' class="figure"'] * len(figures))]

    def row(tag: str, cells: Sequence[str]) -> str:
        made = (f"<{tag}{kind}>{text(cell)}</{tag}>" for kind, cell in zip(kinds, cells, strict=True))
        return f"<tr>{''.join(made)}</tr>"

    head = f"<thead>{row('th', heads)}</thead>" if any(heads) else ""
    yield f'<div class="scroll"><table>{head}<tbody>'
    yield from (row("td", cells) for cells in rows)
    yield "</tbody></table></div>"


def sentences(name: str, said: Sequence[str]) -> Iterator[str]:
    """A folded list of sentences, if there are any."""
    if said:
        items = "".join(f"<li>{text(sentence)}</li>" for sentence in said)
        yield f'<details><summary>{text(name)} ({len(said)})</summary><ul class="words">{items}</ul></details>'
