// The table of owners: sorted by any column, filtered by what is typed, repeated blocks together or one by one.

class Owners {
  static STEP = 100;

  constructor(root, estimate) {
    this.body = root.querySelector("tbody");
    this.heads = [...root.querySelectorAll("th[data-key]")];
    this.more = root.querySelector(".more");
    this.found = root.querySelector(".found");
    this.owners = estimate.owners;
    this.together = together(estimate.owners);
    this.sorting = { key: "bytes", way: -1 };
    this.most = Owners.STEP;
    this.search = root.querySelector("input[type=search]");
    this.search.addEventListener("input", () => this.show(Owners.STEP));
    this.each = root.querySelector(".each");
    this.each.addEventListener("click", () => {
      this.each.setAttribute("aria-pressed", String(this.each.getAttribute("aria-pressed") !== "true"));
      this.show(Owners.STEP);
    });
    this.more.addEventListener("click", () => this.show(this.most + 10 * Owners.STEP));
    for (const head of this.heads) head.querySelector("button").addEventListener("click", () => this.sort(head.dataset.key));
    this.show(Owners.STEP);
  }

  sort(key) {
    const { sorting } = this;
    this.sorting = { key, way: sorting.key === key ? -sorting.way : key === "bytes" ? -1 : 1 };
    this.show(Owners.STEP);
  }

  show(most) {
    const { key, way } = this.sorting, wanted = this.search.value.trim().toLowerCase();
    const all = this.each.getAttribute("aria-pressed") === "true" ? this.owners : this.together;
    const text = (owner) => `${owner.module} ${LABELS[owner.category] ?? owner.category} ${owner.source}`.toLowerCase();
    const rows = all.filter((owner) => text(owner).includes(wanted)).sort((one, other) =>
      way * (key === "bytes" ? one.bytes - other.bytes : one[key].localeCompare(other[key])));
    this.most = most;
    this.body.replaceChildren(...rows.slice(0, most).map((owner) => this.line(owner)));
    this.more.hidden = rows.length <= most;
    const bytes = rows.reduce((sum, owner) => sum + owner.bytes, 0);
    this.found.textContent = `${count(rows.length)} owners, ${words(bytes)}`;
    for (const head of this.heads) {
      if (head.dataset.key === key) head.setAttribute("aria-sort", way > 0 ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    }
  }

  line({ module, category, source, bytes, count: times }) {
    const name = times > 1 ? `${module} x${times}` : module || "(top level)";
    return make("tr", {},
      make("td", { className: "figure", textContent: words(bytes) }),
      make("td", { className: "kind" }, swatch(category), LABELS[category] ?? category),
      make("td", { className: "path", textContent: name }),
      make("td", { className: "path muted optional", textContent: place(source) }));
  }
}

/** Owners that differ only in a block's number as one. */
function together(owners) {
  const groups = new Map();
  for (const owner of owners) {
    const name = pattern(owner.module), key = JSON.stringify([name, owner.category, owner.source]);
    const group = groups.get(key) ?? { ...owner, module: name, bytes: 0, members: new Map() };
    group.bytes += owner.bytes;
    group.members.set(owner.module, true);
    groups.set(key, group);
  }
  return [...groups.values()].map(({ members, ...group }) => {
    const names = [...members.keys()];
    return { ...group, module: names.length > 1 ? group.module : names[0], count: names.length };
  });
}
