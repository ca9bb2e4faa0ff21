// Asks for what is new once a second, and shows it.

const EVERY = 1000, LATER = 4000; // Milliseconds between two questions; after one without answer.
const SPANS = { "5 min": 300, "1 h": 3600, all: Infinity };
const part = (name) => document.querySelector(`[data-part=${name}]`);

/** All that was told so far, and what is shown of it. */
const run = { at: "", points: null, heat: null, answer: null, device: null, seen: new Map(), span: "all", hidden: new Set(), chosen: false };

/** Columns with those of an answer in place of whatever they had from an index on. */
function joined(before, after) {
  const from = after.from;
  if (Array.isArray(after)) return after;
  const join = (old, fresh) => Array.isArray(fresh) ? [...(old ?? []).slice(0, from), ...fresh]
    : fresh !== null && typeof fresh === "object" ? Object.fromEntries(Object.entries(fresh).map(([name, value]) => [name, join(old?.[name], value)]))
    : fresh;
  return join(before ?? {}, after);
}

function take(answer) {
  run.points = joined(run.points, answer.points);
  run.heat = joined(run.heat, answer.heat);
  run.at = answer.at;
  run.answer = answer;
  for (const each of answer.last?.devices ?? []) run.seen.set(`${each.rank ?? ""}/${each.device}/${each.uuid}`, each);
  run.device = answer.devices.some(({ key }) => key === run.device) ? run.device : answer.devices[0]?.key ?? null;
}

/** Lines that a device can have. Used memory and the limit are of the whole host where training is on the CPU: not shown at first. */
function series(now) {
  const cpu = now.device === "cpu";
  return [
    { name: "used", title: cpu ? "used on this host" : "used by all", off: cpu },
    { name: "reserved", title: "reserved", absent: now.reserved_bytes === null },
    { name: "allocated", title: "allocated", absent: now.allocated_bytes === null },
    { name: "peak", title: "most allocated so far", absent: now.peak_allocated_bytes === null },
    { name: "resident", title: "this process", off: !cpu || now.allocated_bytes !== null },
    { name: "plan", title: `plan: ${now.figure} peak and upper end`, absent: now.predicted_bytes === null },
    { name: "limit", title: "limit", off: cpu },
  ].filter(({ absent }) => !absent);
}

const timeline = new Lines(part("timeline"), 320, words, tellMemory);
const shares = new Lines(part("shares"), 180, percent, tellShares);
const heatmap = new Heatmap(part("heatmap"));

function told(title, value) {
  return make("span", { textContent: `${title} ` }, make("b", { textContent: value }));
}

function moment(index) {
  const { seconds, step, level: levels } = run.points;
  const at = step[index] === null ? "" : `, step ${count(step[index])}`;
  return make("span", {}, make("b", { textContent: clock(seconds[index]) }), `${at} `, level(LEVELS[levels[index]]));
}

function tellMemory(index) {
  const columns = run.points.devices[run.device];
  const figures = ["used", "reserved", "allocated"].map((name) => [name, columns[`${name}_bytes`][index]]);
  return [moment(index), ...[...figures, ["most so far", columns.peak_allocated_bytes[index]], ["this process", run.points.resident_bytes[index]]]
    .filter(([, bytes]) => bytes !== null).map(([name, bytes]) => told(name, words(bytes)))];
}

function tellShares(index) {
  const columns = run.points.devices[run.device], limit = device().limit_bytes;
  const found = [moment(index), told("headroom", percent(1 - columns.demand_bytes[index] / limit))];
  const stuck = columns.fragmentation[index];
  return stuck === null ? found : [...found, told("stuck", percent(stuck))];
}

/** The device that is shown, as it was last: a rank that has ended is in no check any more. */
function device() {
  return run.seen.get(run.device);
}

function showTimeline(now) {
  const columns = run.points.devices[run.device], { seconds } = run.points;
  const after = lastAtMost(seconds, seconds.at(-1) - SPANS[run.span]) + 1, from = Math.min(after, seconds.length - 1);
  const shown = series(now).filter(({ name }) => !run.hidden.has(name)).map(({ name }) => name);
  const values = { used: columns.used_bytes, reserved: columns.reserved_bytes, allocated: columns.allocated_bytes, peak: columns.peak_allocated_bytes, resident: run.points.resident_bytes };
  const lines = shown.filter((name) => values[name]).map((name) => ({ colour: name === "peak" ? "allocated" : name, values: values[name], dash: name === "peak" ? [3, 4] : [] }));
  const across = [];
  if (shown.includes("plan")) across.push({ colour: "plan", value: now.predicted_bytes, to: now.predicted_high_bytes });
  if (shown.includes("limit")) across.push({ colour: "limit", value: now.limit_bytes, dash: [7, 5] });
  timeline.show(seconds, lines, across, { from, levels: run.points.level });
  const stuck = { colour: "fragmentation", values: columns.fragmentation };
  const left = { colour: "headroom", values: columns.demand_bytes.map((bytes) => (bytes === null ? null : Math.max(0, 1 - bytes / now.limit_bytes))), dash: [6, 4] };
  part("shares").querySelector(".legend").hidden = columns.fragmentation.every((share) => share === null);
  shares.show(seconds, [stuck, left], [], { from, most: 1 });
}

function showTable() {
  const { seconds, step, level: levels } = run.points, columns = run.points.devices[run.device];
  const size = (name, index) => ({ figure: true, textContent: columns[name][index] === null ? "–" : words(columns[name][index]) });
  const last = seconds.map((_, index) => index).slice(-20).reverse();
  part("timeline").querySelector("tbody").replaceChildren(...last.map((index) => row(
    { textContent: clock(seconds[index]), className: "when" }, { figure: true, textContent: step[index] === null ? "" : count(step[index]) },
    { children: [level(LEVELS[levels[index]])] }, size("used_bytes", index), size("reserved_bytes", index), size("allocated_bytes", index),
    { figure: true, textContent: columns.fragmentation[index] === null ? "–" : percent(columns.fragmentation[index]) })));
}

/** Buttons of a group, made anew only where there are others, so that the focus stays. */
function buttons(group, choices, pressed, press) {
  if (group.dataset.choices !== JSON.stringify(choices)) {
    group.dataset.choices = JSON.stringify(choices);
    group.replaceChildren(...choices.map(([name, title]) => {
      const button = make("button", { type: "button", textContent: title, className: group.classList.contains("series") ? name : "" });
      button.dataset.name = name;
      button.addEventListener("click", () => { press(name); show(); });
      return button;
    }));
  }
  for (const button of group.children) button.setAttribute("aria-pressed", String(pressed(button.dataset.name)));
}

function showButtons(now) {
  const group = document.getElementById("devices"), all = run.answer.devices;
  group.hidden = all.length < 2;
  buttons(group, all.map((each) => [each.key, named(each)]), (name) => name === run.device, (name) => { run.device = name; run.chosen = false; });
  const lines = series(now);
  if (!run.chosen) run.hidden = new Set(lines.filter(({ off }) => off).map(({ name }) => name));
  buttons(part("timeline").querySelector(".series"), lines.map(({ name, title }) => [name, title]), (name) => !run.hidden.has(name), (name) => {
    run.chosen = true;
    if (!run.hidden.delete(name)) run.hidden.add(name);
  });
  buttons(part("timeline").querySelector(".spans"), Object.keys(SPANS).map((name) => [name, name]), (name) => name === run.span, (name) => { run.span = name; });
}

function show() {
  const { answer } = run, { last, plan, job } = answer;
  document.title = `${last ? `${SYMBOLS[last.level]} ` : ""}${job || "training"} – memplan`;
  document.getElementById("job").textContent = job || "training";
  document.getElementById("about").textContent = plan ? `Plan: ${plan.target} on ${plan.gpu}, peak ${words(plan.device_bytes)} (${words(plan.low_bytes)} to ${words(plan.high_bytes)})` : "No plan: nothing to compare with.";
  document.getElementById("versions").textContent = `memplan ${answer.memplan_version}. Sizes are in binary units. Each point ${answer.points.each === 1 ? "is one check" : `stands for ${count(answer.points.each)} checks`}.`;
  document.getElementById("figures").hidden = !device();
  if (!device()) return;
  const now = device(), day = run.points.seconds.at(-1) - run.points.seconds[0] > 86400;
  showLevel(last);
  showButtons(now);
  showFacts(now, last.host, last.step);
  showTimeline(now);
  showTable();
  heatmap.show(run.heat.seconds, run.heat.devices[run.device]);
  showRegions(part("regions"), last.regions);
  showTurns(part("turns"), answer.turns, day);
}

/** Says when the last check was, and whether anybody answers. */
function pulse(stale) {
  const last = run.answer?.last;
  document.getElementById("stale").hidden = !stale;
  document.getElementById("pulse").textContent = last ? `Last check ${clock(last.seconds, true)}, number ${count(last.number)}.` : "Waiting for the first check …";
}

/** An answer; null where there is none. */
async function answered() {
  try {
    const found = await fetch(`data.json?at=${run.at}`, { cache: "no-store" });
    return found.ok ? await found.json() : null;
  } catch {
    return null;
  }
}

async function ask() {
  const answer = await answered();
  setTimeout(ask, answer ? EVERY : LATER);
  if (answer) {
    take(answer);
    show();
  }
  pulse(!answer);
}

part("shares").querySelector(".legend").replaceChildren(...[["fragmentation", "stuck, of the reserved"], ["headroom", "headroom, of the limit"]].map(
  ([name, title]) => make("li", {}, make("span", { className: `key ${name}` }), title)));
theme.start();
ask();
