"use strict";
// What all pages share: words for bytes, elements, canvases, the theme.

/** Bytes in binary units, as memplan writes them everywhere. */
function words(bytes) {
  const size = Math.abs(bytes), sign = bytes < 0 ? "-" : "";
  for (const [unit, power] of [["TiB", 40], ["GiB", 30], ["MiB", 20], ["KiB", 10]]) {
    const factor = 2 ** power;
    if (size >= factor * 0.99995) return `${sign}${twoDigits(size / factor)} ${unit}`;
  }
  return `${sign}${size} B`;
}

/** Two decimals, ties to the even digit as Python rounds them; a binary number is a tie where it ends in an odd eighth. */
function twoDigits(number) {
  const below = Math.floor(number * 100);
  return ((number * 8) % 2 === 1 ? (below + (below % 2)) / 100 : number).toFixed(2);
}

/** The text that Python's ``embedded`` packed into an element. */
function unpacked(id) {
  const packed = atob(document.getElementById(id).textContent);
  const stream = new Blob([Uint8Array.from(packed, (char) => char.charCodeAt(0))]).stream();
  return new Response(stream.pipeThrough(new DecompressionStream("deflate"))).text();
}

function count(number) {
  return number.toLocaleString("en-US");
}

/** An element with properties and children; text is never read as HTML. */
function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function clamp(value, low, high) {
  return Math.min(high, Math.max(low, value));
}

/** Index of the last item that is at most a value; -1 if none is. */
function lastAtMost(sorted, value) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= value) low = middle + 1; else high = middle;
  }
  return low - 1;
}

/** A canvas that is drawn anew whenever its size or the theme changes. */
class Picture {
  static all = [];

  constructor(canvas, height, draw) {
    this.canvas = canvas;
    this.height = height;
    this.draw = draw;
    this.waiting = false;
    Picture.all.push(this);
    new ResizeObserver(() => this.refresh()).observe(canvas);
  }

  get width() {
    return this.canvas.clientWidth;
  }

  /** Draw before the next frame, however often it is asked for. */
  refresh() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.now();
    });
  }

  now() {
    const { width, height, canvas } = this, scale = window.devicePixelRatio || 1;
    if (!width) return;
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    this.draw(pen, width, height);
  }
}

/** Diagonal lines, for what is free. */
function hatch(pen) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const part = tile.getContext("2d");
  part.strokeStyle = colour("hatch");
  part.lineWidth = 1;
  for (const shift of [-6, 0, 6]) {
    part.moveTo(shift, 6);
    part.lineTo(shift + 6, 0);
  }
  part.stroke();
  return pen.createPattern(tile, "repeat");
}

/** Light or dark: the system's choice until a reader makes one. */
const theme = {
  dark: matchMedia("(prefers-color-scheme: dark)"),
  chosen: null,

  set(name) {
    document.documentElement.dataset.theme = name;
    document.getElementById("theme").textContent = name === "dark" ? "Light" : "Dark";
    for (const picture of Picture.all) picture.refresh();
    document.dispatchEvent(new Event("theme"));
  },

  follow() {
    theme.set(theme.chosen ?? (theme.dark.matches ? "dark" : "light"));
  },

  /** Obey the button and the system from now on. */
  start() {
    document.getElementById("theme").addEventListener("click", () => {
      theme.chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
      theme.follow();
    });
    theme.dark.addEventListener("change", theme.follow);
    theme.follow();
  },
};
