"""The colours of pages and pictures: one table by role and category, light and dark."""

import re
from collections.abc import Mapping
from typing import Final

ROLES: Final[Mapping[str, tuple[str, str]]] = {
    "ground": ("#ffffff", "#101418"),
    "panel": ("#f6f7f9", "#181d23"),
    "line": ("#e1e4e8", "#2c333b"),
    "ink": ("#1b1f24", "#e4e8ec"),
    "muted": ("#5b636d", "#9aa4af"),
    "accent": ("#0b5fc4", "#77b3ff"),
    "good": ("#116b3c", "#6fcf97"),
    "warn": ("#8a5a00", "#e5b95c"),
    "bad": ("#b3261e", "#ff8f85"),
    "on-colour": ("#16191d", "#16191d"),
    "hatch": ("#8a929b", "#6d7681"),
    "measured": ("#7b1fa2", "#f5e6ff"),
}
"""Role → its colour on a light and on a dark ground. Every use of one stands beside a word."""
CATEGORIES: Final[Mapping[str, tuple[str, str]]] = {
    "parameter": ("#77aadd", "#6797c6"),
    "gradient": ("#ee8866", "#d57a5b"),
    "optimizer_state": ("#eedd88", "#d3c477"),
    "activation": ("#44bb99", "#3ca689"),
    "input": ("#99ddff", "#88c5e3"),
    "buffer": ("#bbcc33", "#a6b52d"),
    "temporary": ("#ffaabb", "#e297a6"),
    "workspace": ("#aaaa00", "#959500"),
    "context": ("#c9ced4", "#8b939c"),
    "fragmentation": ("#ffffff", "#101418"),
}
"""Category → the same. Paul Tol's "light" scheme (https://personal.sron.nl/~pault/, 2021), safe for the colour-blind
and light enough for dark text on all of them; dimmed on a dark ground."""
PLACES: Final[Mapping[str, tuple[str, str]]] = {
    **{f"place-{number}": pair for number, pair in enumerate(list(CATEGORIES.values())[:8])},
    "place-others": CATEGORIES["context"],
}
"""The largest places of a recorded history, which knows no categories → the same."""
_USE = re.compile(r"var\(--([\w-]+)\)")


def variables() -> str:
    """CSS that gives every colour to a page by its name, light unless ``data-theme`` says dark."""
    light, dark = (" ".join(f"--{name}: {pair[side]};" for name, pair in _all().items()) for side in (0, 1))
    return f':root {{ color-scheme: light; {light} }}\n:root[data-theme="dark"] {{ color-scheme: dark; {dark} }}\n'


def literal(style: str) -> str:
    """A style written in these names as a picture by itself needs it: in plain colours, as the reader's system prefers.

    Programs that draw SVG seldom know custom properties.
    """
    light, dark = (_USE.sub(lambda use: _all()[use[1]][side], style) for side in (0, 1))  # noqa: B023 - used at once.
    return f"{light}@media (prefers-color-scheme: dark) {{{dark}}}\n"


def _all() -> Mapping[str, tuple[str, str]]:
    return {**ROLES, **CATEGORIES, **PLACES}
