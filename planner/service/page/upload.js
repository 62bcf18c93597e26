// Scripts, configurations and logs: read by the service, never run, and compared with the best plan.
const MOST_BYTES = 700_000; // of one file; a body takes a MiB, and a log's beginning says what it is
const cutFiles = new Set();

function uploadPanel() {
  const input = html("input", { type: "file", id: "files", multiple: true, class: "unseen", onchange: () => { takeFiles(input.files); input.value = ""; } });
  const area = html("label", { for: "files", class: "drop" }, html("b", {}, "Check my script"),
    html("span", {}, "Drop a launch script, a configuration, a config.json or a log here, or choose files. They are read, never run."));
  droppable(area, takeFiles);
  return html("div", { class: "upload" }, input, area, html("ul", { id: "uploaded", class: "taken", "aria-label": "files that are read" }),
    html("p", { class: "note", id: "files-note" }), html("div", { class: "fields", id: "of-script", hidden: true }, ...Object.entries(OF_SCRIPT).map(scriptField)));
}

// What a script leaves to its shell.
const OF_SCRIPT = { environment: ["Its variables", "NNODES=4 GPUS=8"], launch: ["Which launch", "1"] };
const scriptField = ([name, [words, example]]) => html("div", { class: name === "launch" ? "field" : "field wide" }, html("label", { for: `script-${name}` }, words),
  html("input", { id: `script-${name}`, type: "text", placeholder: example, autocomplete: "off", spellcheck: "false", oninput: changed }));

function besideFiles() {
  const [variables, launch] = Object.keys(OF_SCRIPT).map((name) => document.getElementById(`script-${name}`).value.trim());
  const environment = Object.fromEntries(variables.split(/\s+/).filter((one) => one.includes("=")).map((one) => [one.slice(0, one.indexOf("=")), one.slice(one.indexOf("=") + 1)]));
  return { ...(variables ? { environment } : {}), ...(/^\d+$/.test(launch) ? { launch: Number(launch) } : {}) };
}

// Files say the job; what the form said stands aside until they are gone, and what is typed then wins over them.
let aside = null;

function leaveAside() {
  if (aside) return;
  aside = { fields: state.fields, pins: state.pins };
  Object.assign(state, { fields: bare(), pins: bare() });
  for (const name of TAKEN) control(name).placeholder = "from your files";
}

function forgetFiles() {
  state.files = new Map();
  aside = null;
  showFiles();
}

function bringBack(more = {}) {
  Object.assign(state, { files: new Map(), fields: bare({ ...(aside?.fields ?? state.fields), ...more }), pins: aside?.pins ?? state.pins });
  aside = null;
  showFiles();
  changed();
  showForm();
}

async function takeFiles(list) {
  leaveAside();
  for (const file of list) {
    if (file.size > MOST_BYTES) cutFiles.add(file.name);
    else cutFiles.delete(file.name);
    state.files.set(file.name, await file.slice(0, MOST_BYTES).text());
  }
  showFiles();
  showForm();
  changed();
}

function dropFile(name) {
  state.files.delete(name);
  if (!state.files.size) return bringBack();
  showFiles();
  return changed();
}

function showFiles() {
  document.getElementById("uploaded").replaceChildren(...[...state.files.keys()].map((name) => html("li", { class: "chip" },
    name, cutFiles.has(name) ? " (its beginning)" : "",
    html("button", { type: "button", "aria-label": `leave ${name} out`, onclick: () => dropFile(name) }, "×"))));
  document.getElementById("of-script").hidden = !state.files.size;
  filesNote("");
}

function filesNote(text) {
  const note = document.getElementById("files-note");
  note.className = text ? "note error" : "note";
  note.textContent = inForm(text);
}

// A model's configuration alone is the form's model; anything more is a job.
function modelAlone(reading) {
  const said = Object.keys(reading.request).filter((name) => !["model", "stack"].includes(name));
  return typeof reading.request.model === "object" && !said.some((name) => reading.origins[name] && reading.origins[name] !== "form" && reading.origins[name] !== "follows");
}

// A cluster file alone is the form's machines.
const machinesAlone = (reading) => reading.files.length === 1 && typeof reading.request.cluster === "object" && !reading.request.model && !reading.framework;

function readingSection(reading) {
  const files = reading.files.map((one) => html("li", {}, html("code", {}, one.name), `: ${one.title}`));
  const parts = [html("ul", {}, ...files)];
  parts.push(...saidOf("Say this first", reading.missing, "bad"));
  if (reading.refused) parts.push(warning(`It has no price: ${reading.refused}`));
  if (reading.answer) parts.push(...priced(reading));
  if (reading.examined) parts.push(...examined(reading.examined));
  const free = html("button", { type: "button", onclick: () => freeJob(reading) }, "Plan this job freely");
  parts.push(html("p", {}, free), readTable(reading));
  parts.push(...saidOf("Assumed", reading.assumed), ...saidOf("Read and not priced", reading.unpriced), ...saidOf("Also", reading.remarks));
  return panel("reading", "What your files say", "They were read, not run.", ...parts);
}

const saidOf = (title, several, kind = null) => several.length ? [html("div", {}, html("h3", { class: kind }, title), listed(several))] : [];

function priced({ answer }) {
  const best = answer.why_not[0], mine = answer.prediction?.iteration_seconds;
  if (!mine) return [warning(`It does not run: ${answer.rejected.map((one) => one.example).join("; ")}`)];
  const gain = best?.iteration_seconds ? 1 - best.iteration_seconds / mine : 0;
  if (!answer.fits) return misfit(answer, best, mine);
  const far = gain > 0.0005 ? `The best plan takes ${percent(gain, 1)} less time: ${seconds(best.iteration_seconds)} instead of ${seconds(mine)} per iteration.` : `It is as fast as the best plan: ${seconds(mine)}.`;
  return [html("p", { class: "verdict" }, html("strong", {}, far)), ...differsOf(answer), ...(best ? [small(best.text)] : [])];
}

const differsOf = ({ alternatives }) => alternatives[0]?.differs ? [small(`The best has ${inAxes(alternatives[0].differs)}.`)] : [];

function misfit(answer, best, mine) {
  const fitting = best?.iteration_seconds ? ` The best plan that fits takes ${seconds(best.iteration_seconds)}.` : "";
  const said = `It is likely to run out of memory; if it runs, an iteration takes ${seconds(mine)}.${fitting}`;
  return [html("p", { class: "verdict" }, html("strong", {}, said)), ...differsOf(answer)];
}

function examined({ measured_seconds: measured, predicted_seconds: predicted, changes }) {
  const compared = measured ? [html("p", { class: "verdict" }, `Measured ${seconds(measured)}; predicted ${seconds(predicted)} (${change(predicted / measured - 1)}).`)] : [];
  return [...compared, ...saidOf("Change this first", changes.map((one) => `−${percent(one.saved, 1)}: ${one.text}`))];
}

function readTable(reading) {
  const { pins = {}, ...fields } = reading.request;
  const rows = [...Object.entries(fields), ...Object.entries(pins).map(([name, value]) => [`pins.${name}`, value])].map(([name, value]) => {
    const shown = name === "model" && typeof value === "object" ? sizesInWords(value) : typeof value === "object" ? JSON.stringify(value) : String(value);
    const plain = name.replace("pins.", "");
    return [FORM[plain]?.label ?? plain.replaceAll("_", " "), shown, reading.origins[name] ?? ""];
  });
  return html("details", {}, html("summary", {}, `All ${rows.length} values that were read`), table(["field", "value", "from"], rows, { name: "values that were read" }));
}

const sizesInWords = (model) => `${model.title && model.title !== "given" ? `${model.title}, ` : ""}${counted(model.num_layers, "layer")}, hidden ${whole(model.hidden_size)}, ${counted(model.num_heads, "head")}`;

// The job of the files in the form, without their layout.
function freeJob(reading) {
  const { pins, layers_per_stage: split, recomputed_per_stage: again, ...job } = reading.request;
  for (const [name, value] of Object.entries(job)) state.fields[name] = name in FORM && typeof value === "number" ? String(value) : value;
  aside = { fields: state.fields, pins: bare() };
  bringBack();
}

// What is missing, next to the fields that say it.
function showMissing(reading) {
  for (const line of reading.missing) for (const [, word] of line.matchAll(/--([a-z][a-z-]*[a-z])/g)) {
    if (!showError(offered?.options[word], line)) filesNote(reading.missing.join("; "));
  }
}
