"""The frame of an SVG picture, by itself or in a page."""

from collections.abc import Iterable
from xml.sax.saxutils import escape

from memplan.page.colours import CATEGORIES, literal

TITLE_Y = 26
"""Where the title stands, in pixels."""
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: var(--ink) }
  .title { font-weight: 600; font-size: 15px }
  .back { fill: var(--ground) } .grid { stroke: var(--line) }
"""
"""Text, ground and grid, in the names of ``memplan.page.colours``."""
BY_CATEGORY = "  " + " ".join(f".{name} {{ fill: var(--{name}) }}" for name in CATEGORIES) + "\n"
"""Style of what stands for a category: its class is the category's name."""


def category_class(label: str) -> str:
    """The class of what is labelled by a category; others look like the context."""
    return label if label in CATEGORIES else "context"


def picture(
    title: str, parts: Iterable[str], *, size: tuple[int, int], left: int, style: str, alone: bool = True
) -> str:
    """An SVG document.

    The title, plain text, stands above the picture, beginning at ``left`` pixels; the style is CSS of the parts'
    classes. ``alone`` it needs nothing else; in a page that page has ``STYLE``, the style and the colours.
    """
    width, height = size
    own = [f"<style>{literal(STYLE + style)}</style>"] if alone else []
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" viewBox="0 0 {width} {height}" role="img">',
            f"<title>{escape(title)}</title>",
            *own,
            f'<rect class="back" width="{width}" height="{height}"/>',
            f'<text class="title" x="{left}" y="{TITLE_Y}">{escape(title)}</text>',
            *parts,
            "</svg>\n",
        ]
    )
