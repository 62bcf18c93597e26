// Scripts, configurations and logs: read by the service, never run, and priced beside the best plan.
const MOST_BYTES = 700_000; // of one file; a body takes a MiB, and a log's beginning says what it is
const cutFiles = new Set();

function uploadPanel() {
  const input = html("input", { type: "file", id: "files", multiple: true, class: "unseen", onchange: () => { takeFiles(input.files); input.value = ""; } });
  const area = html("label", { for: "files", class: "drop" }, html("b", {}, "Check my script"),
    html("span", {}, "Drop a launch script, a configuration, a config.json or a log here, or choose files. They are read, never run."));
  for (const kind of ["dragenter", "dragover"]) area.addEventListener(kind, (event) => { event.preventDefault(); area.classList.add("over"); });
  area.addEventListener("dragleave", () => area.classList.remove("over"));
  area.addEventListener("drop", (event) => { event.preventDefault(); area.classList.remove("over"); takeFiles(event.dataTransfer.files); });
  return html("div", { class: "upload" }, input, area, html("ul", { id: "uploaded", "aria-label": "files that are read" }),
    html("p", { class: "note", id: "files-note" }));
}

async function takeFiles(list) {
  for (const file of list) {
    if (file.size > MOST_BYTES) cutFiles.add(file.name);
    else cutFiles.delete(file.name);
    state.files[file.name] = await file.slice(0, MOST_BYTES).text();
  }
  showFiles();
  changed();
}

function showFiles() {
  document.getElementById("uploaded").replaceChildren(...Object.keys(state.files).map((name) => html("li", { class: "chip" },
    name, cutFiles.has(name) ? " (its beginning)" : "",
    html("button", { type: "button", "aria-label": `leave ${name} out`, onclick: () => { delete state.files[name]; showFiles(); changed(); } }, "×"))));
  filesNote("");
}

function filesNote(text) {
  const note = document.getElementById("files-note");
  note.className = text ? "note error" : "note";
  note.textContent = text;
}

// Fields of the form that win over the files: those that somebody typed, not the example's.
function besideFiles() {
  return question();
}

// A model's configuration alone is the form's model; anything more is a job.
function modelAlone(reading) {
  const said = Object.keys(reading.request).filter((name) => !["model", "stack"].includes(name));
  return typeof reading.request.model === "object" && !said.some((name) => reading.origins[name] && reading.origins[name] !== "form" && reading.origins[name] !== "follows");
}

function readingSection(reading) {
  const files = reading.files.map((one) => html("li", {}, html("code", {}, one.name), `: ${one.title}`));
  const parts = [html("ul", {}, ...files)];
  if (reading.missing.length) parts.push(lines("Say this first", "bad", reading.missing));
  if (reading.refused) parts.push(html("p", { class: "bad" }, `⚠ It has no price: ${reading.refused}`));
  if (reading.answer) parts.push(...priced(reading));
  if (reading.examined) parts.push(...examined(reading.examined));
  const free = html("button", { type: "button", onclick: () => freeJob(reading) }, "Plan this job freely");
  parts.push(html("p", {}, free), readTable(reading));
  if (reading.assumed.length) parts.push(lines("Assumed", "", reading.assumed));
  if (reading.unpriced.length) parts.push(lines("Read and not priced", "", reading.unpriced));
  if (reading.remarks.length) parts.push(lines("Also", "", reading.remarks));
  return block("reading", "What your files say", "They were read, not run.", ...parts);
}

const lines = (title, kind, several) => html("div", {}, html("h3", { class: kind }, title), html("ul", {}, ...several.map((line) => html("li", {}, inWords(line)))));
// Options of the command line, as the form has them.
const inWords = (text) => text;

function priced({ answer }) {
  const best = answer.why_not[0], mine = answer.prediction?.iteration_seconds;
  if (!mine) return [html("p", { class: "bad" }, `⚠ It does not run: ${answer.rejected.map((one) => one.example).join("; ")}`)];
  const gain = best?.iteration_seconds ? 1 - best.iteration_seconds / mine : 0;
  const far = gain > 0.0005 ? `The best plan is ${percent(gain)} faster: ${seconds(best.iteration_seconds)} in place of ${seconds(mine)}.` : `It is as fast as the best plan: ${seconds(mine)}.`;
  const misfit = answer.fits ? [] : [html("p", { class: "bad" }, "⚠ It needs more memory than the GPUs have.")];
  const differs = answer.alternatives[0]?.differs ? [html("p", { class: "small" }, `The best has ${answer.alternatives[0].differs}`)] : [];
  return [html("p", { class: "verdict" }, html("strong", {}, far)), ...misfit, ...differs, ...(best ? [html("p", { class: "small" }, best.text)] : [])];
}

function examined(found) {
  const measured = found.measured_seconds, of = measured ? [html("p", { class: "verdict" }, `Measured ${seconds(measured)}; predicted ${seconds(found.predicted_seconds)} (${found.predicted_seconds >= measured ? "+" : "−"}${percent(Math.abs(found.predicted_seconds / measured - 1))}).`)] : [];
  const changes = found.changes.map((one) => html("li", {}, html("b", {}, `−${percent(one.saved)}`), ` ${one.text}`));
  return [...of, ...(changes.length ? [html("h3", {}, "Change this first"), html("ul", {}, ...changes)] : [])];
}

function readTable(reading) {
  const { pins = {}, ...fields } = reading.request;
  const rows = [...Object.entries(fields), ...Object.entries(pins).map(([name, value]) => [`pins.${name}`, value])].map(([name, value]) => {
    const shown = name === "model" && typeof value === "object" ? sizesInWords(value) : typeof value === "object" ? JSON.stringify(value) : String(value);
    return html("tr", {}, html("th", { scope: "row" }, FORM[name.replace("pins.", "")]?.label ?? name.replace("pins.", "").replaceAll("_", " ")), html("td", {}, shown), html("td", { class: "soft" }, reading.origins[name] ?? ""));
  });
  return html("details", {}, html("summary", {}, `All ${rows.length} values that were read`),
    html("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Values that were read" }, html("table", {}, html("thead", {}, html("tr", {}, ...["field", "value", "from"].map((name) => html("th", { scope: "col" }, name)))), html("tbody", {}, ...rows))));
}

const sizesInWords = (model) => `${model.title && model.title !== "given" ? `${model.title}, ` : ""}${model.num_layers} layers, hidden ${model.hidden_size}, ${model.num_heads} heads`;

// The job of the files in the form, without their layout.
function freeJob(reading) {
  const { pins, layers_per_stage: split, recomputed_per_stage: again, ...job } = reading.request;
  for (const [name, value] of Object.entries(job)) if (name in FORM || name === "changes") state.fields[name] = typeof value === "number" ? String(value) : value;
  state.pins = {};
  state.files = {};
  showFiles();
  changed();
  showForm();
}
