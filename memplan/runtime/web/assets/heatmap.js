// Bytes alive by time (across) and size of block (up), on a logarithmic scale of colours.

class Heatmap {
  static LEFT = 72;
  static BOTTOM = 24;
  // Ends and middle of viridis (matplotlib, CC0): dark is little in the light theme too, so that scales need no second legend.
  static SCALE = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];

  constructor(root) {
    Object.assign(this, { root, seconds: [], columns: [], row: null, low: 0, high: 0, most: 1 });
    this.canvas = root.querySelector("canvas");
    this.readout = root.querySelector(".readout");
    this.picture = new Picture(this.canvas, 300, (pen, width, height) => this.draw(pen, width, height));
    this.cursor = new Cursor(this.canvas, (x) => this.column(x), () => this.refresh());
    this.canvas.addEventListener("pointermove", (pointed) => this.pick(this.rowAt(pointed.offsetY)));
    this.canvas.addEventListener("keydown", (pressed) => {
      const step = { ArrowUp: 1, ArrowDown: -1 }[pressed.key];
      if (!step) return;
      this.pick(clamp((this.row ?? this.fullest()) + step, this.low, this.high));
      pressed.preventDefault();
    });
    const stops = Heatmap.SCALE.map((parts) => `rgb(${parts})`);
    root.querySelector(".scale").style.background = `linear-gradient(to right, ${stops})`;
  }

  /** columns: bytes by power of two, for each time; shorter ones end with zeros. */
  show(seconds, columns) {
    const used = columns.flatMap((column) => column.flatMap((bytes, power) => (bytes ? [power] : [])));
    const any = used.length > 0;
    this.root.querySelector(".shown").hidden = !any;
    this.root.querySelector(".absent").hidden = columns.some((column) => column.length);
    if (!any) return;
    const low = used.reduce((one, other) => Math.min(one, other)), high = used.reduce((one, other) => Math.max(one, other));
    const most = columns.reduce((top, column) => Math.max(top, ...column), 1);
    Object.assign(this, { seconds, columns, low, high, most });
    this.root.querySelector(".ends").textContent = `1 KiB or less to ${words(most)}`;
    this.cursor.length = seconds.length;
    this.refresh();
    this.table();
  }

  refresh() {
    this.picture.refresh();
    const column = this.columns[this.cursor.at];
    if (!column) return;
    this.root.dataset.index = this.cursor.at;
    const row = clamp(this.row ?? this.fullest(), this.low, this.high), bytes = column[row] ?? 0;
    const all = column.reduce((sum, each) => sum + each, 0);
    this.cursor.say(this.readout, [
      make("span", {}, make("b", { textContent: clock(this.seconds[this.cursor.at]) })),
      make("span", { textContent: `blocks of ${Heatmap.range(row)}: ` }, make("b", { textContent: words(bytes) })),
      make("span", { className: "muted", textContent: `of ${words(all)} in blocks of all sizes` }),
    ]);
  }

  /** What blocks of a row are like: sizes from half of a power of two up to it. */
  static range(power) {
    return power === 0 ? "0 B" : `${words(2 ** (power - 1))} to ${words(2 ** power)}`;
  }

  fullest() {
    const column = this.columns[this.cursor.at] ?? [];
    return column.indexOf(Math.max(...column));
  }

  pick(row) {
    this.row = row;
    this.refresh();
  }

  column(x) {
    const each = (this.picture.width - Heatmap.LEFT) / this.columns.length;
    return clamp(Math.floor((x - Heatmap.LEFT) / each), 0, this.columns.length - 1);
  }

  get rowHeight() {
    return (this.picture.height - Heatmap.BOTTOM) / (this.high - this.low + 1);
  }

  rowAt(y) {
    return clamp(this.high - Math.floor(y / this.rowHeight), this.low, this.high);
  }

  /** A colour for bytes; nothing for none. Below 1 KiB all is the darkest. */
  ink(bytes) {
    const share = clamp((Math.log2(bytes) - 10) / Math.max(1, Math.log2(this.most) - 10), 0, 1) * (Heatmap.SCALE.length - 1);
    const below = Math.min(Math.floor(share), Heatmap.SCALE.length - 2), part = share - below;
    return `rgb(${Heatmap.SCALE[below].map((value, index) => Math.round(value + part * (Heatmap.SCALE[below + 1][index] - value)))})`;
  }

  draw(pen, width, height) {
    const each = (width - Heatmap.LEFT) / this.columns.length, high = this.rowHeight;
    this.columns.forEach((column, index) => column.forEach((bytes, power) => {
      if (!bytes) return;
      pen.fillStyle = this.ink(bytes);
      pen.fillRect(Heatmap.LEFT + index * each, (this.high - power) * high, Math.max(1, each + 0.4), Math.max(1, high - 0.6));
    }));
    pen.fillStyle = colour("muted");
    pen.textAlign = "right";
    const skip = Math.ceil(16 / high);
    for (let power = this.low; power <= this.high; power += skip) {
      pen.fillText(`< ${words(2 ** power).replace(".00", "")}`, Heatmap.LEFT - 8, (this.high - power + 0.5) * high);
    }
    pen.textAlign = "left";
    pen.fillText(clock(this.seconds[0]), Heatmap.LEFT, height - 10);
    pen.textAlign = "right";
    pen.fillText(clock(this.seconds.at(-1)), width, height - 10);
    pen.strokeStyle = colour("ink");
    pen.lineWidth = 1.5;
    const row = clamp(this.row ?? this.fullest(), this.low, this.high);
    pen.strokeRect(Heatmap.LEFT + this.cursor.at * each, (this.high - row) * high, Math.max(3, each), high);
  }

  table() {
    const column = this.columns.at(-1), all = column.reduce((sum, bytes) => sum + bytes, 0);
    const rows = column.flatMap((bytes, power) => (bytes ? [[power, bytes]] : []));
    this.root.querySelector("tbody").replaceChildren(...rows.reverse().map(([power, bytes]) => row(
      { textContent: Heatmap.range(power) }, { textContent: words(bytes), figure: true }, { textContent: percent(bytes / all), figure: true })));
  }
}
