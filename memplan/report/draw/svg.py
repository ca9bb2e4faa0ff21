"""The frame of a stand-alone SVG picture."""

from collections.abc import Iterable
from xml.sax.saxutils import escape

TITLE_Y = 26
"""Where the title stands, in pixels."""
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #24292f }
  .title { font-weight: 600; font-size: 15px }
  .back { fill: #ffffff } .grid { stroke: #d8dee4 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .back { fill: #0d1117 } .grid { stroke: #30363d }
  }
"""
"""Text, ground and grid, light and dark: what a reader's system prefers."""


def picture(title: str, parts: Iterable[str], *, size: tuple[int, int], left: int, style: str) -> str:
    """An SVG document that needs nothing else.

    The title, plain text, stands above the picture, beginning at ``left`` pixels; the style is CSS of the parts'
    classes.
    """
    width, height = size
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}{style}</style>",
            f'<rect class="back" width="{width}" height="{height}"/>',
            f'<text class="title" x="{left}" y="{TITLE_Y}">{escape(title)}</text>',
            *parts,
            "</svg>\n",
        ]
    )
