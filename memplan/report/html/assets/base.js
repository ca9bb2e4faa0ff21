// What all parts of the page share: its data, and words for what is in it. Numbers come from the embedded JSON alone.

const report = await unpacked("memplan-data");
const data = JSON.parse(report);
const estimates = data.estimates ?? data.rows?.map((row) => row.estimate) ?? [data];
// A recorded history knows no categories: its page names the places that it is stacked by.
const CATEGORIES = data.labels ? Object.keys(data.labels) : ["parameter", "gradient", "optimizer_state", "activation", "input", "buffer", "temporary", "workspace"];
const LABELS = {
  parameter: "parameters", gradient: "gradients", optimizer_state: "optimizer state", activation: "activations",
  input: "inputs", buffer: "buffers", temporary: "temporaries", workspace: "workspaces",
  fragmentation: "allocator slack", context: "context", ...data.labels,
};

function swatch(category) {
  return make("span", { className: `swatch ${category}` });
}

/** Blocks that differ only in their number are one: layers.*.mlp. */
function pattern(module) {
  const starred = module.replace(/(^|\.)\d+(?=\.|$)/g, "$1*");
  return starred === "*" ? module : starred;
}

/** A library's file from the library on. */
function place(source) {
  return source.replace(/^.*(site|dist)-packages[\\/]/, "");
}

