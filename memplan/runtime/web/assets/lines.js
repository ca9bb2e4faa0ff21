// Lines over time with a cursor, bands and levels across.

/** A time of day; with the date where the run is older than a day. */
function clock(seconds, day = false) {
  const time = new Date(seconds * 1000), two = (number) => String(number).padStart(2, "0");
  const date = day ? `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())} ` : "";
  return `${date}${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
}

/** A chart's cursor is moved by the mouse and by keys, and stays at the last point while that is where it is. */
class Cursor {
  constructor(canvas, place, moved) {
    this.index = -1; // -1: the last, whichever that is.
    this.length = 0;
    this.moved = moved;
    canvas.addEventListener("pointermove", (pointed) => this.set(place(pointed.offsetX)));
    canvas.addEventListener("pointerleave", () => document.activeElement !== canvas && this.set(-1));
    canvas.addEventListener("keydown", (pressed) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[pressed.key];
      if (step) this.set(Math.max(0, this.at + step));
      else if (pressed.key === "Home") this.set(0);
      else if (pressed.key === "End") this.set(-1);
      else return;
      pressed.preventDefault();
    });
  }

  get at() {
    return this.index < 0 ? this.length - 1 : Math.min(this.index, this.length - 1);
  }

  /** Put words into a readout; they are read out where a reader moves the cursor, and not each time that there is a new point. */
  say(readout, parts) {
    readout.ariaLive = this.index < 0 ? "off" : "polite";
    const made = make("div", {}, ...parts);
    if (made.textContent !== readout.textContent) readout.replaceChildren(...made.childNodes);
  }

  set(index) {
    this.index = index < this.length - 1 ? index : -1;
    this.moved();
  }
}

class Lines {
  static LEFT = 72;
  static RIGHT = 10;
  static TOP = 10;
  static BOTTOM = 24;

  /**
   * root: a section with a canvas and a .readout; label: how a value is written; tell: what the readout says at an index.
   */
  constructor(root, height, label, tell) {
    Object.assign(this, { root, label, tell, seconds: [], lines: [], across: [], levels: [], from: 0, most: null });
    this.canvas = root.querySelector("canvas");
    this.readout = root.querySelector(".readout");
    this.picture = new Picture(this.canvas, height, (pen, width, high) => this.draw(pen, width, high));
    this.cursor = new Cursor(this.canvas, (x) => this.index(x), () => this.refresh());
  }

  /**
   * lines: [{colour, values, dash}], values with null where there are none; across: [{colour, value, to, dash}], a level,
   * or a band up to another; from: index of the first point shown; most: top of the scale where it is fixed; levels: how bad
   * it was, for a strip above.
   */
  show(seconds, lines, across, { from = 0, most = null, levels = [] } = {}) {
    Object.assign(this, { seconds: seconds.slice(from), from, lines: lines.map((line) => ({ ...line, values: line.values.slice(from) })), across, most, levels: levels.slice(from) });
    this.cursor.length = this.seconds.length;
    this.refresh();
  }

  refresh() {
    this.picture.refresh();
    if (this.seconds.length) this.cursor.say(this.readout, this.tell(this.from + this.cursor.at));
    this.root.dataset.index = this.from + this.cursor.at;
  }

  get span() {
    const start = this.seconds[0], end = this.seconds.at(-1);
    return [start, Math.max(end, start + 1)];
  }

  get top() {
    if (this.most !== null) return this.most;
    const tops = [...this.lines.flatMap(({ values }) => values), ...this.across.flatMap(({ value, to }) => [value, to])];
    return 1.06 * Math.max(1, ...tops.filter((value) => Number.isFinite(value)));
  }

  x(seconds, width) {
    const [start, end] = this.span;
    return Lines.LEFT + (seconds - start) / (end - start) * (width - Lines.LEFT - Lines.RIGHT);
  }

  /** The point nearest to a place. */
  index(x) {
    const [start, end] = this.span, width = this.picture.width - Lines.LEFT - Lines.RIGHT;
    const time = start + clamp((x - Lines.LEFT) / width, 0, 1) * (end - start);
    const before = lastAtMost(this.seconds, time);
    const after = Math.min(before + 1, this.seconds.length - 1);
    return before < 0 || Math.abs(this.seconds[after] - time) < Math.abs(this.seconds[before] - time) ? after : before;
  }

  draw(pen, width, height) {
    if (!this.seconds.length) return;
    const top = this.top, bottom = height - Lines.BOTTOM;
    const y = (value) => bottom - value / top * (bottom - Lines.TOP);
    this.grid(pen, width, bottom, top, y);
    for (const level of this.across) this.level(pen, width, level, y);
    for (const line of this.lines) this.line(pen, width, line, y);
    this.strip(pen, width);
    const at = this.x(this.seconds[this.cursor.at], width);
    pen.strokeStyle = colour("ink");
    pen.lineWidth = 1;
    pen.globalAlpha = 0.5;
    pen.strokeRect(at, Lines.TOP, 0, bottom - Lines.TOP);
    pen.globalAlpha = 1;
  }

  grid(pen, width, bottom, top, y) {
    pen.fillStyle = colour("muted");
    pen.strokeStyle = colour("line");
    pen.lineWidth = 1;
    pen.textAlign = "right";
    for (const value of ticks(top, this.label === words)) {
      pen.strokeRect(Lines.LEFT, Math.round(y(value)) + 0.5, width - Lines.LEFT - Lines.RIGHT, 0);
      pen.fillText(this.label(value).replace(/\.0+ /, " "), Lines.LEFT - 8, y(value));
    }
    const [start, end] = this.span, parts = Math.max(1, Math.floor((width - Lines.LEFT) / 160));
    for (let part = 0; part <= parts; part++) {
      const time = start + (end - start) * part / parts;
      pen.textAlign = part === 0 ? "left" : part === parts ? "right" : "center";
      pen.fillText(clock(time), this.x(time, width), bottom + 14);
    }
  }

  /** Each point's level from the one before on; nothing where all is well. */
  strip(pen, width) {
    this.levels.forEach((level, index) => {
      if (!level) return;
      const end = this.x(this.seconds[index], width), start = index ? this.x(this.seconds[index - 1], width) : end;
      pen.fillStyle = colour(level === 1 ? "warn" : "bad");
      pen.fillRect(Math.floor(start), 0, Math.max(2, Math.ceil(end) - Math.floor(start)), 2 + 2 * level);
    });
  }

  level(pen, width, { colour: name, value, to, dash = [] }, y) {
    const left = Lines.LEFT, wide = width - Lines.LEFT - Lines.RIGHT;
    pen.strokeStyle = pen.fillStyle = colour(name);
    pen.lineWidth = 1.5;
    if (to !== undefined && to !== null) {
      pen.globalAlpha = 0.14;
      pen.fillRect(left, y(to), wide, y(value) - y(to));
      pen.globalAlpha = 1;
    }
    pen.setLineDash(dash);
    pen.strokeRect(left, y(value), wide, 0);
    pen.setLineDash([]);
  }

  line(pen, width, { colour: name, values, dash = [] }, y) {
    pen.strokeStyle = pen.fillStyle = colour(name);
    pen.lineWidth = 2;
    pen.lineJoin = "round";
    pen.setLineDash(dash);
    pen.beginPath();
    let down = false;
    values.forEach((value, index) => {
      if (value === null) { down = false; return; }
      const x = this.x(this.seconds[index], width);
      if (down) pen.lineTo(x, y(value)); else pen.moveTo(x, y(value));
      // A point with nothing beside it is seen as one.
      if (!down && values[index + 1] == null) pen.fillRect(x - 1.5, y(value) - 1.5, 3, 3);
      down = true;
    });
    pen.stroke();
    pen.setLineDash([]);
  }
}

/** Four to eight round values up to the top: powers of two of bytes, else decimal. */
function ticks(top, binary) {
  const base = binary ? 2 ** (10 * Math.floor(Math.log2(top) / 10)) : 1;
  const raw = top / base / 5, power = 10 ** Math.floor(Math.log10(raw));
  const step = base * power * ([1, 2, 5].find((each) => raw <= each * power) ?? 10);
  return Array.from({ length: Math.floor(top / step) + 1 }, (_, index) => index * step);
}
