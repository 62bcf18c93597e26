// The form: a row of the table for every field, what they offer, and what is wrong next to the field that caused it.
const GOALS = {
  time: "least time", mfu: "highest MFU", cost: "least cost", "tokens-per-gpu-hour": "most tokens per GPU-hour",
  memory: "least memory", goodput: "least time with failures",
};
const AXES = bare({
  tp: { label: "TP" }, cp: { label: "CP" }, pp: { label: "PP" }, vpp: { label: "VPP" }, dp: { label: "DP" },
  ep: { label: "EP" }, etp: { label: "ETP" }, micro_batch_size: { label: "Micro-batch" },
  zero_stage: { label: "ZeRO stage", options: ["0", "1", "2", "3"] },
  schedule: { label: "Schedule", options: [], wide: true },
  recompute: { label: "Recompute", options: ["none", "selective", "partial", "full"], wide: true },
  offload: { label: "Offload", options: ["none", "activations", "optimizer", "optimizer+parameters", "any"], wide: true },
});
const FORM = bare({
  model: { label: "Model", list: true, wide: true, hint: "A name, a hub id, or a config.json dropped below", group: "main" },
  gpus: { label: "GPUs", group: "main", numeric: true },
  price: { label: "$ per GPU-hour", group: "main", numeric: true },
  cluster: { label: "Machines", list: true, wide: true, group: "main", below: () => machinesBox() },
  objective: { label: "Goal", options: Object.keys(GOALS), words: GOALS, wide: true, group: "main" },
  global_batch_size: { label: "Global batch", group: "job", numeric: true },
  seq_length: { label: "Sequence length", group: "job" },
  tokens: { label: "Training tokens", group: "job" },
  precision: { label: "Precision", options: [], group: "job" },
  stack: { label: "Software stack", list: true, group: "job" },
  memory_margin: { label: "Memory margin", group: "job" },
  framework: { label: "Framework", options: [], group: "job" },
  time_limit: { label: "Time limit", group: "job", example: "30s" },
  adapters: { label: "LoRA rank", group: "tune", hint: "16, or 16:linear_qkv" },
  base_precision: { label: "Frozen weights", options: ["fp32", "bf16", "int8", "nf4", "fp4", "nf4-double", "fp4-double"], group: "tune" },
  task: { label: "Task", options: ["pretrain", "finetune", "dpo", "kto", "orpo", "simpo", "reward"], group: "tune" },
  ...Object.fromEntries(Object.entries(AXES).map(([name, row]) => [name, { group: "pins", ...row }])),
});
const GROUPS = {
  main: { title: null },
  job: { title: "Batch, precision, software" },
  tune: { title: "Fine-tune" },
  pins: { title: "Pin the layout", hint: "A number, several (4,8) or a range (2..16). What you leave out is chosen." },
};
let offered = null;

function buildForm(form) {
  for (const [group, { title, hint }] of Object.entries(GROUPS)) {
    const rows = Object.entries(FORM).filter(([, row]) => row.group === group).map(([name, row]) => fieldRow(name, row));
    const grid = html("div", { class: "fields" }, ...rows);
    form.append(title
      ? html("details", { class: "group", id: `group-${group}` }, html("summary", {}, title),
        ...(hint ? [html("p", { class: "hint" }, hint)] : []), grid)
      : html("div", { class: "group" }, grid));
  }
  form.append(html("ul", { id: "also", class: "taken", "aria-label": "asked besides" }));
}

function fieldRow(name, row) {
  const id = `field-${name}`;
  const shared = { id, name, autocomplete: "off", spellcheck: "false", "aria-describedby": `${id}-note` };
  const control = row.options
    ? html("select", { ...shared, onchange: () => typed(name) })
    : html("input", { ...shared, type: "text", inputmode: row.numeric ? "decimal" : "text", list: row.list ? `${id}-list` : null, placeholder: row.example,
      oninput: () => typed(name) });
  const title = MEANINGS[name];
  return html("div", { class: row.wide ? "field wide" : "field" },
    html("label", { for: id, title }, row.label), control,
    ...(row.list ? [html("datalist", { id: `${id}-list` })] : []),
    html("p", { class: "note", id: `${id}-note` }, row.hint ?? ""), ...(row.below ? [row.below()] : []));
}

const control = (name) => document.getElementById(`field-${name}`);

function typed(name) {
  const value = control(name).value;
  if (typeof valueOf(name) === "object" && value === shortName(valueOf(name))) return;
  set(name, value);
  if (name === "cluster") showMachines();
}

// What is asked and has no place in the form, with a way to leave it out.
function showOthers() {
  document.getElementById("also").replaceChildren(...others().map((name) => html("li", { class: "chip" },
    `${name.replaceAll("_", " ")}: ${typeof state.fields[name] === "object" ? JSON.stringify(state.fields[name]) : state.fields[name]}`,
    html("button", { type: "button", "aria-label": `leave ${name} out`, onclick: () => { set(name, ""); showForm(); } }, "×"))));
}

// Show the state in the form, and open the groups that say something.
function showForm() {
  showOthers();
  showMachines();
  for (const [name, row] of Object.entries(FORM)) {
    const value = valueOf(name), shown = typeof value === "object" ? shortName(value) : value;
    if (row.options) fillOptions(name, row, shown);
    if (control(name).value !== shown) control(name).value = shown;
    if (value !== "" && row.group !== "main") document.getElementById(`group-${row.group}`).open = true;
  }
}

function fillOptions(name, row, value) {
  const values = [...new Set([...row.options, ...(value ? [value] : [])])];
  if (control(name).options.length === values.length + 1) return;
  const words = row.words ?? {};
  control(name).replaceChildren(html("option", { value: "" }, name === "objective" ? `${GOALS.time} (usual)` : "chosen for you"),
    ...values.filter((one) => name !== "objective" || one !== "time" || value === "time").map((one) => html("option", { value: one }, words[one] ?? one)));
}

// What the service offers for each field, once it said so.
function offer(choices) {
  offered = choices;
  const options = (name, rows) => document.getElementById(`field-${name}-list`).replaceChildren(
    ...rows.map(([value, words]) => html("option", { value }, words)));
  options("model", choices.model);
  options("cluster", choices.cluster.map((one) => [one.name, one.title]));
  options("stack", choices.stack);
  for (const name of ["precision", "framework", "schedule"]) FORM[name].options = choices[name];
  showForm();
  showPrice();
}

function showPrice() {
  const chosen = state.fields.cluster ?? "dgx-h100", own = typeof chosen === "object";
  const known = own ? machines.price : offered?.cluster.find((one) => one.name === chosen)?.price;
  control("price").placeholder = known ? `${three(known)} (${own ? "your file" : "catalogue"})` : "not known";
}

// Fields whose placeholder says what was taken.
const TAKEN = ["model", "gpus", "cluster", "stack", "global_batch_size", "seq_length", "tokens"];

// What the answer took where nothing was said, as the placeholder of its field.
function showTaken(request) {
  const taken = { model: shortName(request.model).replace(/^given$/, "from your files"), gpus: whole(request.gpus), cluster: shortName(request.cluster), stack: shortName(request.stack), global_batch_size: whole(request.global_batch_size ?? 0),
    seq_length: whole(request.seq_length ?? 0), tokens: request.tokens ? tokensInWords(request.tokens) : "" };
  for (const [name, value] of Object.entries(taken)) control(name).placeholder = value;
  for (const name of ["precision", "framework"]) {
    const first = control(name).options[0];
    if (first && !valueOf(name) && request[name]) first.textContent = `${request[name]} (chosen)`;
  }
}

// Errors next to the field that caused them: true where there is such a field.
function showError(field, message) {
  if (!(field in FORM)) return false;
  const at = control(field), note = document.getElementById(`field-${field}-note`);
  at.setAttribute("aria-invalid", "true");
  note.className = "note error";
  note.setAttribute("role", "alert");
  note.textContent = inForm(message).replace(new RegExp(`^(pins\\.)?${field}: `), "");
  const group = document.getElementById(`group-${FORM[field].group}`);
  if (group) group.open = true;
  return true;
}

function clearErrors() {
  for (const [name, row] of Object.entries(FORM)) {
    const at = control(name), note = document.getElementById(`field-${name}-note`);
    if (!at.hasAttribute("aria-invalid")) continue;
    at.removeAttribute("aria-invalid");
    note.className = "note";
    note.removeAttribute("role");
    note.textContent = row.hint ?? "";
  }
}
