// What is asked: fields of a question as people typed them, and the link that says it all again.
const EXAMPLE = { model: "llama3-70b", gpus: "128", cluster: "dgx-h100" };
const NUMBERS = new Set(["gpus", "global_batch_size"]);
const state = { fields: bare(), pins: bare(), files: new Map() };
const listeners = [];

const isAxis = (name) => name in AXES;
const valueOf = (name) => (isAxis(name) ? state.pins[name] : state.fields[name]) ?? "";

function set(name, value, { quiet = false } = {}) {
  const table = isAxis(name) ? state.pins : state.fields;
  if (value === "" || value == null) delete table[name];
  else table[name] = value;
  if (!quiet) changed();
}

function changed() {
  history.replaceState(null, "", `#${fragment()}`);
  for (const listener of listeners) listener();
}

// Everything but uploaded files, which a link cannot hold.
function fragment() {
  const said = new URLSearchParams();
  for (const [name, value] of Object.entries({ ...state.fields, ...state.pins })) {
    said.set(name, typeof value === "string" ? value : JSON.stringify(value));
  }
  return said.toString();
}

function fromFragment(text) {
  state.fields = bare();
  state.pins = bare();
  for (const [name, value] of new URLSearchParams(text)) {
    set(name, name in FORM && !value.startsWith("{") ? value : parsed(value), { quiet: true });
  }
  if (!Object.keys(state.fields).length) state.fields = bare(EXAMPLE);
}

// Tables, and fields that the form has no place for: files of a job may say any that a question has.
const others = () => Object.keys(state.fields).filter((name) => !(name in FORM));
function parsed(text) {
  try { return JSON.parse(text); } catch { return text; }
}

// The body of a question.
function question(more = {}) {
  const asked = bare();
  for (const [name, value] of Object.entries(state.fields)) {
    const plain = typeof value === "string" ? value.trim() : value;
    asked[name] = NUMBERS.has(name) && typeof plain === "string" && /^\d+$/.test(plain.replace(/[,_ ]/g, "")) ? Number(plain.replace(/[,_ ]/g, "")) : plain;
  }
  const pins = Object.fromEntries(Object.entries(state.pins).map(([name, value]) => [name, String(value).trim()]));
  return { ...asked, ...(Object.keys(pins).length ? { pins } : {}), ...more };
}
