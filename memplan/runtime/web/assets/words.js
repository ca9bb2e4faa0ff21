// What stands in words and tables: the level with its reasons, facts, parts of the step, changes of the level.

const SYMBOLS = { normal: "✓", warning: "!", critical: "▲", emergency: "✕" };
const LEVELS = ["normal", "warning", "critical", "emergency"];

function percent(share) {
  return `${(share * 100).toFixed(1)} %`;
}

/** A row of a table; each cell is properties, with figure for numbers and children for what is not text alone. */
function row(...cells) {
  return make("tr", {}, ...cells.map(({ figure, children = [], ...properties }) =>
    make("td", { ...(figure ? { className: "figure" } : {}), ...properties }, ...children)));
}

function level(word) {
  return make("span", { className: `word ${word}`, textContent: `${SYMBOLS[word] ?? ""} ${word}` });
}

function named(device) {
  const rank = device.rank === null ? "" : `rank ${device.rank} · `;
  return `${rank}${device.device}`;
}

/** Whether the level is, and what to do. */
function showLevel(last) {
  const place = document.getElementById("level");
  place.className = `word ${last.level}`;
  place.textContent = `${SYMBOLS[last.level]} ${last.level.toUpperCase()}`;
  document.getElementById("sentence").textContent = last.recommendations[0]?.sentence ?? "nothing to do";
  document.getElementById("advice").replaceChildren(...last.recommendations.map(({ code, sentence, remedy }) =>
    make("li", { className: last.level }, make("b", { textContent: `${code} ${sentence}` }), make("p", { textContent: remedy }))));
  document.getElementById("notes").replaceChildren(...last.notes.map((note) => make("li", { textContent: note })));
}

/** Figures of one device now; those that nobody can tell are left out. */
function showFacts(device, host, step) {
  const { trend } = device, size = (bytes) => (bytes === null ? null : words(bytes));
  const drift = device.drift_bytes === null ? null
    : `${words(Math.abs(device.drift_bytes))} ${device.drift_bytes > 0 ? "above" : "below"} its upper end`;
  const growth = trend && (trend.growing ? `${words(Math.round(trend.per_step))} per ${trend.by}` : "none beyond noise");
  const facts = {
    used: [device.device === "cpu" ? "used on this host" : "used by all processes", `${words(device.used_bytes)} of ${words(device.limit_bytes)}`],
    reserved: ["reserved", size(device.reserved_bytes)],
    allocated: ["allocated", size(device.allocated_bytes)],
    headroom: ["headroom", `${words(device.limit_bytes - device.demand_bytes)} (${percent(1 - device.utilisation)})`],
    fragmentation: ["stuck, of the reserved", device.fragmentation === null ? null : percent(device.fragmentation)],
    measured: [`most ${device.figure ?? ""} so far`, size(device.measured_bytes)],
    predicted: [`${device.figure ?? ""} peak of the plan`, size(device.predicted_bytes)],
    drift: ["beside the plan", drift],
    growth: ["growth", growth],
    failures: ["out of memory · retries", `${count(device.ooms)} · ${count(device.retries)}`],
    host: ["this process in host memory", words(host.resident_bytes)],
    step: ["step", step === null ? null : count(step)],
  };
  document.getElementById("facts").replaceChildren(...Object.entries(facts).filter(([, [, value]]) => value).map(
    ([name, [title, value]]) => make("div", {}, make("dt", { textContent: title }), Object.assign(make("dd", { textContent: value }), { id: `fact-${name}` }))));
}

function showRegions(root, regions) {
  const sorted = [...regions].sort((one, other) => other.bytes - one.bytes), most = Math.max(1, sorted[0]?.bytes ?? 0);
  root.querySelector(".shown").hidden = !sorted.length;
  root.querySelector(".absent").hidden = sorted.length > 0;
  root.querySelector("tbody").replaceChildren(...sorted.map(({ name, bytes }) => {
    const bar = make("span", { className: "meter" });
    bar.style.width = `${bytes / most * 100}%`;
    return row({ textContent: name, className: "path" }, { textContent: words(bytes), figure: true }, { className: "wide", children: [bar] });
  }));
}

function showTurns(root, turns, day) {
  root.querySelector("tbody").replaceChildren(...[...turns].reverse().map((turn) => row(
    { textContent: clock(turn.seconds, day), className: "when" }, { textContent: turn.step === null ? "" : count(turn.step), figure: true },
    { children: [level(turn.level)] },
    { className: "path", children: turn.reasons.map(({ device, code, sentence }) => make("div", { textContent: `${device}: ${sentence} (${code})` })) })));
}
