"""Makes the pictures of docs/html-report.md: ``python -m benchmarks.html_pictures``; needs Chromium and Pillow.

They show Llama 3.1 8B, whose figures memplan predicts here and now.
"""

import tempfile
from pathlib import Path

from PIL import Image

from memplan.cli.app import main
from tests.report.html.chromium import Chromium

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
JOB = ["preset:llama-3.1-8b", "--gpu", "h100-80g", "--precision", "bf16", "--seq-len", "2048"]
SHOWN = {
    "html-report.png": (False, ".top", "[data-part=timeline]"),
    "html-report-dark.png": (True, "[data-part=map]", "[data-part=treemap]"),
}
"""File → dark?, first and last element shown."""
MOST_BYTES = 200_000
WIDTH = 1120


def make(folder: Path) -> None:
    """Write the page into a folder, and take its pictures."""
    page = folder / "report.html"
    if main(["estimate", *JOB, "-f", f"html={page}"]) != 0:
        raise SystemExit("no estimate, no pictures")
    browser = Chromium(folder / "profile")
    try:
        for name, (dark, first, last) in SHOWN.items():
            browser.open(page.as_uri(), width=WIDTH, dark=dark)
            browser.picture(folder / name, first=first, last=last, around=16)
            paletted(Image.open(folder / name).convert("RGB")).save(PICTURES / name, optimize=True)
            size = (PICTURES / name).stat().st_size
            print(f"{name}: {size} bytes")
            if size > MOST_BYTES:
                raise SystemExit(f"{name} is larger than {MOST_BYTES} bytes")
    finally:
        browser.close()


def paletted(picture: Image.Image) -> Image.Image:
    """The picture in its 256 most frequent colours, a third of the space; only edges of letters have more."""
    found = sorted(picture.getcolors(1 << 24), reverse=True)[:256]
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for _, colour in found for part in colour])
    return picture.quantize(palette=palette, dither=Image.Dither.NONE)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        make(Path(name))
