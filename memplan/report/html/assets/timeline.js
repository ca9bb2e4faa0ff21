// Bytes over the events of the history, stacked by category: zoom, pan, and what is alive at the cursor.

class Timeline {
  static LEFT = 62;
  static RIGHT = 10;
  static TOP = 34;
  static BOTTOM = 24;
  static LEAST = 20; // Events that the view shows at least.

  constructor(root, estimate) {
    this.root = root;
    this.line = estimate.timeline;
    this.curve = this.line.curve;
    this.categories = CATEGORIES.filter((name) => name in this.curve.categories);
    this.measured = this.line.measured; // Of a run, sample by sample; a prediction alone has none.
    this.hasReserved = !this.measured || this.curve.reserved_bytes.some((bytes, index) => bytes !== this.curve.allocated_bytes[index]);
    const { usable_bytes: usable } = estimate.gpu;
    // Of what is usable the context takes a part, which the allocator never sees.
    this.usable = usable ? usable - estimate.breakdown.context : 0;
    const most = Math.max(...this.curve.reserved_bytes, ...(this.measured?.bytes ?? []), 1);
    this.top = 1.06 * (this.usable && this.usable < 2 * most ? Math.max(most, this.usable) : most);
    this.cursor = Math.max(0, this.curve.event.indexOf(this.line.peak_event));
    this.canvas = root.querySelector("canvas.main");
    this.picture = new Picture(this.canvas, 330, (pen, width, height) => this.draw(pen, width, height));
    this.overview = new Picture(root.querySelector("canvas.overview"), 40, (pen, width, height) => this.drawOverview(pen, width, height));
    this.readout = root.querySelector(".readout");
    root.querySelector(".limit").hidden = !this.usable || this.usable > this.top;
    this.buttons();
    this.listen();
    this.view(0, this.line.events);
    this.tell();
  }

  // ----- the view

  view(from, to) {
    const all = this.line.events, wide = clamp(to - from, Math.min(Timeline.LEAST, all), all);
    const middle = (from + to) / 2;
    this.from = clamp(middle - wide / 2, 0, all - wide);
    this.to = this.from + wide;
    this.root.dataset.from = Math.round(this.from);
    this.root.dataset.to = Math.round(this.to);
    this.root.querySelector(".range").textContent = `events ${count(Math.round(this.from))} to ${count(Math.round(this.to))} of ${count(all)}`;
    this.refresh();
  }

  zoom(factor, around = (this.from + this.to) / 2) {
    this.view(around - (around - this.from) * factor, around + (this.to - around) * factor);
  }

  pan(share) {
    const shift = share * (this.to - this.from);
    this.view(this.from + shift, this.to + shift);
  }

  refresh() {
    this.picture.refresh();
    this.overview.refresh();
  }

  x(event) {
    const room = this.picture.width - Timeline.LEFT - Timeline.RIGHT;
    return Timeline.LEFT + ((event - this.from) / (this.to - this.from)) * room;
  }

  eventAt(x) {
    const room = this.picture.width - Timeline.LEFT - Timeline.RIGHT;
    return this.from + ((x - Timeline.LEFT) / room) * (this.to - this.from);
  }

  y(bytes) {
    const room = this.picture.height - Timeline.TOP - Timeline.BOTTOM;
    return this.picture.height - Timeline.BOTTOM - (bytes / this.top) * room;
  }

  // ----- drawing

  draw(pen, width, height) {
    this.drawPhases(pen, width, height);
    this.drawGrid(pen, width);
    pen.save();
    pen.beginPath();
    pen.rect(Timeline.LEFT, 0, width - Timeline.LEFT - Timeline.RIGHT, height);
    pen.clip();
    this.drawStack(pen);
    if (this.hasReserved) this.drawLine(pen, this.curve.reserved_bytes, "ink");
    if (this.measured) this.drawMeasured(pen);
    pen.restore();
    this.drawAxis(pen, width);
    this.drawMarks(pen, width, height);
  }

  /** Samples in view: the last one before it up to the first one after it. */
  shown() {
    const events = this.curve.event;
    return [Math.max(0, lastAtMost(events, this.from)), Math.min(events.length - 1, lastAtMost(events, this.to) + 1)];
  }

  /** The outline of values above an edge; each sample holds until the next one. */
  trace(pen, values, last, first) {
    const { event } = this.curve;
    for (let index = first; index <= last; index++) {
      pen.lineTo(this.x(event[index]), this.y(values[index]));
      pen.lineTo(this.x(index < event.length - 1 ? event[index + 1] : this.line.events), this.y(values[index]));
    }
  }

  drawStack(pen) {
    const [first, last] = this.shown(), below = new Array(this.curve.event.length).fill(0);
    for (const name of this.categories) {
      const above = this.curve.categories[name].map((bytes, index) => below[index] + bytes);
      pen.beginPath();
      this.trace(pen, above, last, first);
      const edge = this.curve.event;
      for (let index = last; index >= first; index--) {
        pen.lineTo(this.x(index < edge.length - 1 ? edge[index + 1] : this.line.events), this.y(below[index]));
        pen.lineTo(this.x(edge[index]), this.y(below[index]));
      }
      pen.fillStyle = colour(name);
      pen.fill();
      this.label(pen, name, below, above, first, last);
      for (let index = 0; index < below.length; index++) below[index] = above[index];
    }
  }

  /** The category's name inside its band, where that is thick for as long as the word is. */
  label(pen, name, below, above, first, last) {
    const need = pen.measureText(LABELS[name]).width + 12, { event } = this.curve;
    let best = null;
    for (let start = first; start <= last; start += Math.max(1, (last - first) >> 6)) {
      const left = Math.max(this.x(event[start]), Timeline.LEFT);
      let low = 0, high = Infinity, end = start;
      while (end <= last && this.x(event[end]) < left + need) {
        low = Math.max(low, below[end]);
        high = Math.min(high, above[end]);
        end++;
      }
      const room = this.y(low) - this.y(high), fits = left + need < this.picture.width - Timeline.RIGHT;
      if (fits && room > 15 && room > (best?.room ?? 0) * 1.02) best = { room, x: left + 6, y: (this.y(low) + this.y(high)) / 2 };
    }
    if (!best) return;
    pen.fillStyle = colour("on-colour");
    pen.fillText(LABELS[name], best.x, best.y);
  }

  /** The measured curve, and above the chart what was predicted and did not come. */
  drawMeasured(pen) {
    this.drawLine(pen, this.measured.bytes, "measured");
    pen.fillStyle = colour("bad");
    for (const [start, end] of this.measured.gaps) {
      const left = this.x(start);
      pen.fillRect(left, Timeline.TOP, Math.max(this.x(end) - left, 1), 3);
    }
  }

  drawLine(pen, values, name) {
    const [first, last] = this.shown();
    pen.beginPath();
    this.trace(pen, values, last, first);
    pen.strokeStyle = colour(name);
    pen.lineWidth = 1.5;
    pen.stroke();
  }

  drawPhases(pen, width, height) {
    let labelled = -Infinity;
    for (const { phase, step, start, end } of this.line.phases) {
      const left = Math.max(this.x(start), Timeline.LEFT), right = Math.min(this.x(end), width - Timeline.RIGHT);
      if (right <= left) continue;
      if (phase === "backward") {
        pen.fillStyle = colour("panel");
        pen.fillRect(left, Timeline.TOP, right - left, height - Timeline.TOP - Timeline.BOTTOM);
      }
      pen.fillStyle = colour("line");
      pen.fillRect(left, Timeline.TOP - 8, 1, 8);
      if (right - left > pen.measureText(phase).width + 8) {
        pen.fillStyle = colour("muted");
        pen.fillText(phase, left + 4, Timeline.TOP - 9);
        const title = step ? `step ${step}` : "";
        if (title !== labelled) {
          pen.fillStyle = colour("ink");
          pen.fillText(title, left + 4, Timeline.TOP - 25);
        }
        labelled = title;
      }
    }
  }

  drawGrid(pen, width) {
    const step = niceStep(this.top);
    pen.textAlign = "right";
    for (let bytes = 0; bytes <= this.top; bytes += step) {
      const y = Math.round(this.y(bytes)) + 0.5;
      pen.fillStyle = colour("muted");
      pen.fillText(shortBytes(bytes), Timeline.LEFT - 8, y);
      pen.fillStyle = colour("line");
      pen.fillRect(Timeline.LEFT, y - 0.5, width - Timeline.LEFT - Timeline.RIGHT, 1);
    }
    pen.textAlign = "left";
  }

  drawAxis(pen, width) {
    const y = this.picture.height - 10;
    pen.fillStyle = colour("muted");
    pen.fillText(`event ${count(Math.round(this.from))}`, Timeline.LEFT, y);
    pen.textAlign = "right";
    pen.fillText(count(Math.round(this.to)), width - Timeline.RIGHT, y);
    pen.textAlign = "left";
  }

  drawMarks(pen, width, height) {
    if (this.usable && this.usable <= this.top) {
      const y = Math.round(this.y(this.usable)) + 0.5;
      stroke(pen, colour("accent"), 1.5, [5, 4], [[Timeline.LEFT, y], [width - Timeline.RIGHT, y]]);
    }
    const x = this.x(this.curve.event[this.cursor]);
    if (x >= Timeline.LEFT && x <= width - Timeline.RIGHT) {
      stroke(pen, colour("accent"), 1, [], [[x, Timeline.TOP - 4], [x, height - Timeline.BOTTOM]]);
      pen.fillStyle = colour("accent");
      pen.beginPath();
      pen.arc(x, this.y(this.curve.allocated_bytes[this.cursor]), 3.5, 0, 7);
      pen.fill();
    }
    if (this.brush) {
      pen.globalAlpha = 0.18;
      pen.fillStyle = colour("accent");
      pen.fillRect(this.x(this.brush[0]), Timeline.TOP, this.x(this.brush[1]) - this.x(this.brush[0]), height - Timeline.TOP - Timeline.BOTTOM);
      pen.globalAlpha = 1;
    }
  }

  drawOverview(pen, width, height) {
    const { event, allocated_bytes: bytes } = this.curve, room = width - Timeline.LEFT - Timeline.RIGHT;
    const x = (at) => Timeline.LEFT + (at / this.line.events) * room, y = (size) => height - (size / this.top) * height;
    pen.fillStyle = colour("panel");
    pen.fillRect(Timeline.LEFT, 0, room, height);
    pen.fillStyle = colour("context");
    pen.beginPath();
    pen.moveTo(Timeline.LEFT, height);
    bytes.forEach((size, index) => {
      pen.lineTo(x(event[index]), y(size));
      pen.lineTo(x(event[index + 1] ?? this.line.events), y(size));
    });
    pen.lineTo(width - Timeline.RIGHT, height);
    pen.fill();
    pen.globalAlpha = 0.14;
    pen.fillStyle = colour("accent");
    pen.fillRect(x(this.from), 0, x(this.to) - x(this.from), height);
    pen.globalAlpha = 1;
    stroke(pen, colour("accent"), 1.5, [], [[x(this.from) + 1, 0], [x(this.from) + 1, height]]);
    stroke(pen, colour("accent"), 1.5, [], [[x(this.to) - 1, 0], [x(this.to) - 1, height]]);
  }

  // ----- the cursor

  point(sample) {
    this.cursor = clamp(sample, 0, this.curve.event.length - 1);
    this.picture.refresh();
    this.tell();
  }

  phaseAt(event) {
    return this.line.phases.find(({ start, end }) => start <= event && event < end);
  }

  /** Owners of the kept buffers that are alive at an event, blocks that differ in their number together. */
  ownersAt(event) {
    const { owners, buffers } = this.line, found = new Map();
    for (let index = 0; index < buffers.owner.length && buffers.start[index] <= event; index++) {
      if (buffers.end[index] <= event) continue;
      const owner = buffers.owner[index], category = owners.category[owner];
      const name = pattern(owners.module[owner]) || owners.name[owner].replace(/\.default$/, "") || "(top level)";
      const key = `${category} ${name}`;
      const entry = found.get(key) ?? { name, category, bytes: 0, count: 0 };
      entry.bytes += buffers.bytes[index];
      entry.count += 1;
      found.set(key, entry);
    }
    return [...found.values()].sort((one, other) => other.bytes - one.bytes);
  }

  tell() {
    const { curve, cursor } = this, event = curve.event[cursor];
    if (event === undefined) return;
    const { phase, step } = this.phaseAt(event) ?? { phase: "", step: 0 };
    const peak = event === this.line.peak_event ? "the peak: " : "";
    const place = [phase, step ? `step ${step}` : ""].filter(Boolean).join(" of ");
    const title = `${peak}event ${count(event)}${place ? `, ${place}` : ""}: ${this.told(cursor)}`;
    const held = this.categories.map((name) => ({ name, bytes: curve.categories[name][cursor] })).filter(({ bytes }) => bytes);
    const owners = this.ownersAt(event), shown = owners.slice(0, 8);
    const rest = this.line.buffers.owner.length && curve.allocated_bytes[cursor] - shown.reduce((sum, owner) => sum + owner.bytes, 0);
    const lines = held.reverse().map(({ name, bytes }) => row([make("span", {}, swatch(name), LABELS[name])], words(bytes)));
    const largest = shown.map(({ name, category, bytes, count: times }) =>
      row([make("span", {}, swatch(category), times > 1 ? `${name}, ${times} buffers` : name)], words(bytes)));
    if (rest > 0) largest.push(row(["everything else"], words(rest)));
    this.readout.replaceChildren(
      make("strong", { textContent: title }),
      ...(this.categories.length ? [make("div", { className: "lists" }, small(lines, data.labels ? "By place" : "By category"), ...(largest.length ? [small(largest, "Largest owners")] : []))] : []),
    );
    this.root.dataset.event = event;
  }

  /** The levels at a sample, in words. */
  told(cursor) {
    const allocated = words(this.curve.allocated_bytes[cursor]);
    if (!this.measured) return `${allocated} allocated, ${words(this.curve.reserved_bytes[cursor])} reserved`;
    const measured = `${words(this.measured.bytes[cursor])} measured`;
    return this.categories.length ? `${allocated} predicted, ${measured}` : measured;
  }

  // ----- hands

  buttons() {
    const bar = this.root.querySelector(".zooms"), steps = new Map();
    for (const { step, start, end } of this.line.phases) {
      steps.set(step, [Math.min(start, steps.get(step)?.[0] ?? start), end]);
    }
    const add = (text, does, label = text) => {
      const button = make("button", { type: "button", textContent: text, onclick: does });
      button.setAttribute("aria-label", label);
      bar.append(button);
    };
    add("All", () => this.view(0, this.line.events), "Show the whole history");
    for (const [step, [start, end]] of [...steps].filter(([step]) => step).slice(0, 6)) add(`Step ${step}`, () => this.view(start, end));
    add("Peak", () => this.toPeak(), "Zoom to the peak");
    add("−", () => this.zoom(1.6), "Zoom out");
    add("+", () => this.zoom(1 / 1.6, this.curve.event[this.cursor]), "Zoom in at the cursor");
  }

  toPeak() {
    const at = this.line.peak_event, wide = Math.max(this.line.events / 40, Timeline.LEAST);
    this.point(this.curve.event.indexOf(at));
    this.view(at - wide, at + wide);
  }

  listen() {
    const { canvas } = this, over = this.overview.canvas;
    canvas.addEventListener("pointerdown", (moved) => {
      this.start = this.eventAt(moved.offsetX);
      canvas.setPointerCapture(moved.pointerId);
    });
    canvas.addEventListener("pointermove", (moved) => {
      const event = clamp(this.eventAt(moved.offsetX), 0, this.line.events);
      if (this.start !== undefined && Math.abs(this.x(this.start) - moved.offsetX) > 4) this.brush = [this.start, event];
      this.point(lastAtMost(this.curve.event, event));
    });
    canvas.addEventListener("pointerup", () => {
      const brush = this.brush;
      this.brush = this.start = undefined;
      if (brush) this.view(Math.min(...brush), Math.max(...brush));
    });
    canvas.addEventListener("pointercancel", () => (this.brush = this.start = undefined));
    canvas.addEventListener("dblclick", () => this.view(0, this.line.events));
    canvas.addEventListener("wheel", (moved) => this.wheel(moved), { passive: false });
    canvas.addEventListener("keydown", (pressed) => this.key(pressed));
    const drag = (moved) => {
      if (!moved.buttons) return;
      const share = (moved.offsetX - Timeline.LEFT) / (over.clientWidth - Timeline.LEFT - Timeline.RIGHT);
      const half = (this.to - this.from) / 2;
      this.view(share * this.line.events - half, share * this.line.events + half);
    };
    over.addEventListener("pointerdown", (moved) => (over.setPointerCapture(moved.pointerId), drag(moved)));
    over.addEventListener("pointermove", drag);
  }

  /** The wheel belongs to the page until the chart has the focus. */
  wheel(moved) {
    if (!moved.ctrlKey && document.activeElement !== this.canvas) return;
    moved.preventDefault();
    if (Math.abs(moved.deltaX) > Math.abs(moved.deltaY)) this.pan(moved.deltaX / 800);
    else this.zoom(Math.exp(clamp(moved.deltaY, -240, 240) / 400), this.eventAt(moved.offsetX));
  }

  key(pressed) {
    const way = { ArrowLeft: -1, ArrowRight: 1 }[pressed.key];
    if (way && pressed.shiftKey) this.pan(way / 5);
    else if (way) {
      this.point(this.cursor + way);
      const event = this.curve.event[this.cursor];
      if (event < this.from || event > this.to) this.pan(way / 2);
    } else if (pressed.key === "+" || pressed.key === "=") this.zoom(1 / 1.6, this.curve.event[this.cursor]);
    else if (pressed.key === "-") this.zoom(1.6);
    else if (pressed.key === "0" || pressed.key === "Home" || pressed.key === "Escape") this.view(0, this.line.events);
    else if (pressed.key === "p") this.toPeak();
    else return;
    pressed.preventDefault();
  }
}

function row(cells, figure) {
  const line = make("tr", {}, make("td", { className: "figure", textContent: figure }));
  for (const cell of cells) line.append(make("td", { className: "path" }, cell));
  return line;
}

function small(rows, title) {
  return make("table", {}, make("caption", { textContent: title }), make("tbody", {}, ...rows));
}

function stroke(pen, style, width, dash, points) {
  pen.save();
  pen.strokeStyle = style;
  pen.lineWidth = width;
  pen.setLineDash(dash);
  pen.beginPath();
  points.forEach(([x, y]) => pen.lineTo(x, y));
  pen.stroke();
  pen.restore();
}

/** What lies between the lines of an axis: 1, 2 or 5 times a power of ten of the unit that its top is told in. */
function niceStep(top) {
  const unit = 2 ** (10 * Math.max(0, Math.floor(Math.log2(top) / 10))), about = top / unit / 5;
  const power = 10 ** Math.floor(Math.log10(about)), steps = about / power;
  return (steps > 5 ? 10 : steps > 2 ? 5 : steps > 1 ? 2 : 1) * power * unit;
}

function shortBytes(bytes) {
  return bytes ? words(bytes).replace(/\.?0+ /, " ") : "0";
}
