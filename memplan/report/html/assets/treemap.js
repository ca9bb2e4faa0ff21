// The peak by module: areas are bytes, each split by category. Every tile is a button, so that the keyboard reaches it.

class Treemap {
  static MOST = 100; // Tiles of one module.
  static DEEPEST = 3; // Levels inside one another.

  constructor(root, estimate) {
    this.root = root;
    this.box = root.querySelector(".treemap");
    this.crumbs = root.querySelector(".crumbs");
    this.readout = root.querySelector(".readout");
    this.top = tree(estimate);
    this.show([this.top]);
    this.tell(this.top);
    new ResizeObserver(() => this.draw()).observe(this.box);
  }

  /** A path of nodes from the top. */
  show(path) {
    this.path = path.map(alone);
    this.root.dataset.module = this.path.at(-1).path;
    this.crumbs.replaceChildren(...this.path.map((node, index) => {
      const button = make("button", { type: "button", textContent: node.name, disabled: index === this.path.length - 1 });
      button.addEventListener("click", () => this.show(this.path.slice(0, index + 1)));
      return index ? make("span", {}, " › ", button) : button;
    }));
    this.draw();
  }

  draw() {
    const { clientWidth: width, clientHeight: height } = this.box;
    if (!width) return;
    const focused = this.box.contains(document.activeElement);
    this.box.replaceChildren();
    this.place(this.path.at(-1), { x: 0, y: 0, width, height }, 0, this.path);
    if (focused) this.box.querySelector("button")?.focus();
  }

  place(node, area, depth, path) {
    for (const [single, box] of squarified(few(node.children, Treemap.MOST), area)) {
      const child = alone(single);
      const inside = { x: box.x + 3, y: box.y + 19, width: box.width - 6, height: box.height - 22 };
      const nested = depth < Treemap.DEEPEST && child.children.length > 1 && inside.width > 90 && inside.height > 60;
      this.tile(child, box, nested, [...path, child]);
      if (nested) this.place(child, inside, depth + 1, [...path, child]);
    }
  }

  tile(node, box, nested, path) {
    const roomy = box.width > 34 && box.height > 16;
    const tile = make("button", { type: "button", className: nested ? "frame" : roomy ? "" : "tiny" });
    if (roomy) tile.append(make("span", { textContent: nested ? `${node.name}  ${words(node.bytes)}` : node.name }));
    if (roomy && !nested && box.height > 32) tile.append(make("span", { textContent: words(node.bytes) }));
    tile.setAttribute("aria-label", `${node.path || node.name}: ${words(node.bytes)}`);
    Object.assign(tile.style, { left: `${box.x}px`, top: `${box.y}px`, width: `${box.width}px`, height: `${box.height}px` });
    if (!nested) tile.style.background = bands(node);
    tile.addEventListener("pointerenter", () => this.tell(node));
    tile.addEventListener("focus", () => this.tell(node));
    tile.addEventListener("click", () => (node.children.length ? this.show(path) : this.tell(node)));
    tile.addEventListener("keydown", (pressed) => {
      if (pressed.key === "Escape" && this.path.length > 1) this.show([this.top]);
    });
    this.box.append(tile);
  }

  tell(node) {
    const share = `${((100 * node.bytes) / this.top.bytes).toFixed(1)} % of the peak`;
    const parts = Object.entries(node.categories).sort(([, one], [, other]) => other - one);
    const list = make("div", { className: "legend" });
    for (const [name, bytes] of parts) list.append(make("span", {}, swatch(name), `${LABELS[name]} ${words(bytes)}`));
    this.readout.replaceChildren(make("strong", { textContent: `${node.path || node.name}: ${words(node.bytes)}, ${share}` }), list);
  }
}

/** Modules as a tree, with what belongs to none beside them. */
function tree(estimate) {
  const fresh = (name, path) => ({ name, path, bytes: 0, categories: {}, children: [], byName: new Map() });
  const add = (node, category, bytes) => {
    node.bytes += bytes;
    node.categories[category] = (node.categories[category] ?? 0) + bytes;
  };
  const below = (node, name, path) => {
    if (!node.byName.has(name)) {
      node.byName.set(name, fresh(name, path));
      node.children.push(node.byName.get(name));
    }
    return node.byName.get(name);
  };
  const top = fresh("device", "");
  for (const { module, category, bytes } of estimate.owners) {
    if (bytes <= 0) continue;
    let node = top, path = "";
    add(node, category, bytes);
    for (const part of module ? module.split(".") : ["(top level)"]) {
      path = path ? `${path}.${part}` : part;
      node = below(node, part, path);
      add(node, category, bytes);
    }
  }
  for (const extra of ["fragmentation", "context"]) {
    const bytes = estimate.breakdown[extra];
    if (bytes > 0) [top, below(top, LABELS[extra], LABELS[extra])].forEach((node) => add(node, extra, bytes));
  }
  const settle = (node) => {
    // A module that has bytes of its own beside those of its parts shows them as one more part.
    const inside = node.children.reduce((sum, child) => sum + child.bytes, 0);
    if (node.children.length && node.bytes > inside) {
      const own = fresh("(itself)", node.path);
      for (const [category, bytes] of Object.entries(node.categories)) {
        const left = bytes - node.children.reduce((sum, child) => sum + (child.categories[category] ?? 0), 0);
        if (left > 0) add(own, category, left);
      }
      node.children.push(own);
    }
    node.children.sort((one, other) => other.bytes - one.bytes).forEach(settle);
  };
  settle(top);
  return top;
}

/** A node, or where it holds but one other that has parts, both as one: encoder.layer. */
function alone(node) {
  const [only] = node.children;
  return node.children.length === 1 && only.children.length ? alone({ ...only, name: `${node.name}.${only.name}` }) : node;
}

/** The largest nodes, and the rest as one. */
function few(nodes, most) {
  if (nodes.length <= most) return nodes;
  const rest = nodes.slice(most - 1), categories = {};
  for (const node of rest) {
    for (const [name, bytes] of Object.entries(node.categories)) categories[name] = (categories[name] ?? 0) + bytes;
  }
  const bytes = rest.reduce((sum, node) => sum + node.bytes, 0);
  return [...nodes.slice(0, most - 1), { name: `${rest.length} smaller`, path: "", bytes, categories, children: rest }];
}

/** A background that is divided as a node's bytes are. */
function bands(node) {
  let at = 0;
  const stops = [];
  for (const name of [...CATEGORIES, "context", "fragmentation"]) {
    const share = (100 * (node.categories[name] ?? 0)) / node.bytes;
    if (!share) continue;
    stops.push(`${colour(name === "fragmentation" ? "context" : name)} ${at}% ${at + share}%`);
    at += share;
  }
  return `linear-gradient(90deg, ${stops.join(", ")})`;
}

/** Rectangles as square as can be (Bruls, Huizing, van Wijk: Squarified treemaps, 2000); nodes largest first. */
function squarified(nodes, { x, y, width, height }) {
  const placed = [], scale = (width * height) / Math.max(1, nodes.reduce((sum, node) => sum + node.bytes, 0));
  let rest = nodes.filter((node) => node.bytes > 0);
  while (rest.length && width > 0 && height > 0) {
    const side = Math.min(width, height);
    let taken = 0, area = 0, worst = Infinity;
    while (taken < rest.length) {
      const next = area + rest[taken].bytes * scale;
      const largest = rest[0].bytes * scale, smallest = rest[taken].bytes * scale;
      const ratio = Math.max((side * side * largest) / (next * next), (next * next) / (side * side * smallest));
      if (ratio > worst) break;
      [area, worst] = [next, ratio];
      taken += 1;
    }
    const depth = area / side, along = width >= height;
    let offset = 0;
    for (const node of rest.slice(0, taken)) {
      const length = (node.bytes * scale) / depth;
      placed.push([node, along ? { x, y: y + offset, width: depth, height: length } : { x: x + offset, y, width: length, height: depth }]);
      offset += length;
    }
    if (along) [x, width] = [x + depth, width - depth]; else [y, height] = [y + depth, height - depth];
    rest = rest.slice(taken);
  }
  return placed;
}
