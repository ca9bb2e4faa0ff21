// The allocator at the peak: segments one after the other in rows, as text runs, and the blocks inside them.

class AllocatorMap {
  static ROWS = 22;
  static GAP = 3;

  constructor(root, estimate) {
    this.root = root;
    this.line = estimate.timeline;
    this.canvas = root.querySelector("canvas");
    this.readout = root.querySelector(".readout");
    this.segments = this.line.segments.map((segment, number) => this.measured(segment, number));
    // One stream and pool after the other, large segments first: free holes are then seen beside their equals.
    this.order = [...this.segments].sort((one, other) =>
      one.stream - other.stream || one.small - other.small || other.size - one.size || one.number - other.number);
    this.only = null;
    this.chosen = null;
    this.picture = new Picture(this.canvas, 24, (pen, width) => this.draw(pen, width));
    this.back = root.querySelector(".back");
    this.back.addEventListener("click", () => this.show(null));
    this.listen();
    this.show(null);
    this.choose(this.largest());
  }

  measured({ stream, small, expandable, blocks }, number) {
    let offset = 0;
    const segment = { stream, small, expandable, number, blocks: [] };
    blocks.bytes.forEach((size, index) => {
      segment.blocks.push({ segment, size, owner: blocks.owner[index], requested: blocks.requested_bytes[index], offset });
      offset += size;
    });
    return Object.assign(segment, { size: offset });
  }

  largest() {
    const blocks = this.segments.flatMap((segment) => segment.blocks);
    return blocks.reduce((best, block) => (block.size > (best?.size ?? 0) ? block : best), null);
  }

  /** All segments, or one alone. */
  show(segment) {
    this.only = segment;
    const shown = segment ? [segment] : this.order;
    let start = 0;
    this.placed = [];
    for (const each of shown) {
      for (const block of each.blocks) this.placed.push({ block, start: start + block.offset });
      start += each.size;
    }
    this.starts = this.placed.map((each) => each.start);
    this.total = start;
    this.rows = segment ? 6 : AllocatorMap.ROWS;
    this.perRow = Math.max(1, Math.ceil(this.total / this.rows));
    this.rowHeight = segment ? 34 : 14;
    this.picture.height = this.rows * (this.rowHeight + AllocatorMap.GAP);
    this.back.hidden = !segment;
    this.root.dataset.segment = segment ? segment.number : "";
    this.picture.refresh();
  }

  // ----- drawing

  draw(pen, width) {
    const scale = width / this.perRow, free = hatch(pen);
    for (const { block, start } of this.placed) {
      pen.fillStyle = block.owner < 0 ? free : colour(this.line.owners.category[block.owner]);
      for (const piece of this.pieces(start, block.size)) {
        const x = piece.from * scale, wide = (piece.to - piece.from) * scale, y = piece.row * (this.rowHeight + AllocatorMap.GAP);
        if (block.owner < 0) {
          pen.fillRect(x, y, wide, this.rowHeight);
          stroke(pen, colour("hatch"), 1, [], [[x, y + 0.5], [x + wide, y + 0.5]]);
          stroke(pen, colour("hatch"), 1, [], [[x, y + this.rowHeight - 0.5], [x + wide, y + this.rowHeight - 0.5]]);
        } else pen.fillRect(x, y, Math.max(wide, 0.4), this.rowHeight);
        this.edge(pen, block, piece, x + wide, y, wide);
      }
    }
    if (this.chosen) this.outline(pen, scale);
  }

  /** Where a block ends a thin line, where a segment ends a gap: only where there is room for them. */
  edge(pen, block, piece, x, y, wide) {
    if (!piece.last || wide < 3) return;
    const ends = block.offset + block.size === block.segment.size;
    pen.save();
    pen.fillStyle = colour("ground");
    pen.fillRect(x - (ends ? 2 : 0.8), y, ends ? 2 : 0.8, this.rowHeight);
    pen.restore();
  }

  outline(pen, scale) {
    const found = this.placed.find(({ block }) => block === this.chosen);
    if (!found) return;
    for (const { row: line, from, to } of this.pieces(found.start, found.block.size)) {
      const y = line * (this.rowHeight + AllocatorMap.GAP);
      pen.strokeStyle = colour("ink");
      pen.lineWidth = 2;
      pen.strokeRect(from * scale + 1, y + 1, Math.max(2, (to - from) * scale - 2), this.rowHeight - 2);
    }
  }

  /** A stretch of bytes cut where the rows end. */
  *pieces(start, size) {
    const end = start + size;
    while (start < end) {
      const line = Math.floor(start / this.perRow), stop = Math.min(end, (line + 1) * this.perRow);
      yield { row: line, from: start - line * this.perRow, to: stop - line * this.perRow, last: stop === end };
      start = stop;
    }
  }

  // ----- what is chosen

  choose(block) {
    if (!block || block === this.chosen) return;
    this.chosen = block;
    this.picture.refresh();
    const { segment } = block, { owners } = this.line;
    const free = segment.blocks.filter(({ owner }) => owner < 0).reduce((sum, { size }) => sum + size, 0);
    const pool = segment.expandable ? "expandable" : segment.small ? "small pool" : "large pool";
    const where = `in a segment of ${words(segment.size)} (${pool}, stream ${segment.stream}) with ${segment.blocks.length} `
      + `${segment.blocks.length === 1 ? "block" : "blocks"}, ${words(free)} of it free`;
    const title = make("strong");
    if (block.owner < 0) title.append(make("span", { className: "swatch fragmentation" }), `${words(block.size)} free`);
    else {
      const category = owners.category[block.owner];
      const name = [owners.module[block.owner] || "(top level)", owners.name[block.owner].replace(/\.default$/, "")].filter(Boolean).join(" · ");
      title.append(swatch(category), `${words(block.size)} ${data.labels ? "" : `${LABELS[category]}: `}${name}`);
    }
    const asked = block.owner < 0 || block.requested === block.size ? "" : `, ${words(block.requested)} asked for`;
    const source = block.owner < 0 ? "" : place(owners.source[block.owner]);
    this.readout.replaceChildren(title, make("div", { className: "muted", textContent: where + asked }), make("div", { className: "muted", textContent: source }));
  }

  at(moved) {
    const line = Math.floor(moved.offsetY / (this.rowHeight + AllocatorMap.GAP));
    const byte = line * this.perRow + (moved.offsetX / this.picture.width) * this.perRow;
    return byte < this.total ? this.placed[lastAtMost(this.starts, byte)]?.block : null;
  }

  listen() {
    this.canvas.addEventListener("pointermove", (moved) => this.choose(this.at(moved)));
    this.canvas.addEventListener("click", (moved) => {
      const block = this.at(moved);
      if (block && !this.only) this.show(block.segment);
    });
    this.canvas.addEventListener("keydown", (pressed) => this.key(pressed));
  }

  key(pressed) {
    const place = this.placed.findIndex(({ block }) => block === this.chosen);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[pressed.key], jump = { ArrowDown: 1, ArrowUp: -1 }[pressed.key];
    if (step) this.choose(this.placed[clamp(place + step, 0, this.placed.length - 1)].block);
    else if (jump) this.jump(place, jump);
    else if (pressed.key === "Enter" && this.chosen) this.show(this.chosen.segment);
    else if (pressed.key === "Escape") this.show(null);
    else return;
    pressed.preventDefault();
  }

  /** To the first block of another segment. */
  jump(place, way) {
    const own = this.placed[place]?.block.segment;
    let next = place;
    while (this.placed[next]?.block.segment === own) next += way;
    if (this.placed[next]) this.choose(this.placed[next].block.segment.blocks[0]);
  }
}
