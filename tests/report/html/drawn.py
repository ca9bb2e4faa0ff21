"""What a browser has drawn."""

import json

from tests.report.html.chromium import Chromium

CHART, MAP, TREE, OWNERS = (f"[data-part={name}]" for name in ("timeline", "map", "treemap", "owners"))


PIXELS = """(() => { const canvas = document.querySelector(%s), copy = new OffscreenCanvas(canvas.width, canvas.height);
  const pen = copy.getContext("2d", {willReadFrequently: true});
  pen.drawImage(canvas, 0, 0);
  const at = pen.getImageData(0, 0, canvas.width, canvas.height).data, seen = new Set();
  for (let index = 0; index < at.length; index += 4)
    if (at[index + 3] > 250) seen.add(`${at[index]},${at[index + 1]},${at[index + 2]}`);
  return [...seen]; })()"""


def texts(browser: Chromium, selector: str) -> list[str]:
    return browser.js(f"[...document.querySelectorAll({json.dumps(selector)})].map(each => each.innerText.trim())")


def colours(browser: Chromium, selector: str) -> set[str]:
    """Colours of a canvas as ``r,g,b``."""
    return set(browser.js(PIXELS % json.dumps(selector)))


def colour_of(browser: Chromium, name: str) -> str:
    value = browser.js(f"getComputedStyle(document.documentElement).getPropertyValue('--{name}').trim()")
    return ",".join(str(int(value[start : start + 2], 16)) for start in (1, 3, 5))
