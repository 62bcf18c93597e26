// Machines of one's own: a cluster file, chosen, dropped or pasted, which the service checks.
const SAMPLE = `name = "mine"
accelerator = "h100-sxm"
gpus_per_node = 8
nodes = 4
price = "2.95 $/h"

[network]
bandwidth = "400 Gb/s"
`;
const machines = { words: "", price: null };

function machinesBox() {
  const input = html("input", { type: "file", id: "machines-file", class: "unseen", accept: ".toml,.json", onchange: async () => { takeMachines(await input.files[0].text()); input.value = ""; } });
  const area = html("textarea", { id: "machines-text", rows: 9, autocomplete: "off", spellcheck: "false", placeholder: SAMPLE, "aria-describedby": "machines-note", oninput: settled(QUIET, () => checkMachines()) });
  const box = html("details", { id: "machines", class: "own" }, html("summary", {}, "My own machines"),
    html("p", { class: "hint" }, "What ", html("code", {}, "plan init"), " writes: paste it, or choose or drop the file. It becomes part of the link."),
    html("label", { for: "machines-text", class: "unseen" }, "Cluster file"), area,
    html("p", { class: "note", id: "machines-note" }),
    html("div", { class: "row" }, input, html("label", { for: "machines-file", class: "button" }, "Choose a file"),
      html("button", { type: "button", onclick: () => takeMachines(SAMPLE) }, "Start from an example")));
  droppable(box, (files) => files[0].text().then(takeMachines));
  return box;
}

// Something that files can be dropped on.
function droppable(area, take) {
  for (const kind of ["dragenter", "dragover"]) area.addEventListener(kind, (event) => { event.preventDefault(); area.classList.add("over"); });
  area.addEventListener("dragleave", () => area.classList.remove("over"));
  area.addEventListener("drop", (event) => { event.preventDefault(); area.classList.remove("over"); take(event.dataTransfer.files); });
}

function takeMachines(text) {
  at("machines").open = true;
  at("machines-text").value = text;
  at("machines-text").scrollTop = 0;
  return checkMachines();
}

// The machines of the text become those of the question, all of them; an empty text leaves the machines by name.
async function checkMachines() {
  const text = at("machines-text").value;
  machinesNote("");
  if (!text.trim()) return typeof state.fields.cluster === "object" ? set("cluster", "") || showForm() : null;
  try {
    const found = await ask("machines", { text });
    if (found) useMachines(found);
  } catch (error) {
    machinesNote(error.message, true);
    tellStatus("");
    at("answer").classList.add("stale");
    at("refusal").replaceChildren(html("p", {}, "Mend the cluster file in the form. The answer below is for other machines."));
  }
  return null;
}

function useMachines(found) {
  Object.assign(machines, { words: found.words, price: found.usd_per_gpu_hour });
  machinesNote(`${found.words}.`);
  if (found.gpus) set("gpus", String(found.gpus), { quiet: true });
  if (found.stack) set("stack", found.stack, { quiet: true });
  set("cluster", found.cluster);
  showForm();
}

function machinesNote(text, wrong = false) {
  const note = at("machines-note"), area = at("machines-text");
  note.className = wrong ? "note error" : "note";
  note.textContent = text.replace(/^your file: /, "");
  for (const [name, value] of [["role", "alert"], ["aria-invalid", "true"]]) {
    const on = name === "role" ? note : area;
    if (wrong) on.setAttribute(name, value);
    else on.removeAttribute(name);
  }
}

// Machines that a link brought stand in the field as JSON, which it takes too; by name there are none in it.
async function showMachines() {
  const table = state.fields.cluster, area = at("machines-text");
  if (typeof table !== "object") {
    if (area.value) { area.value = ""; machinesNote(""); }
    return;
  }
  if (area.value) return;
  at("machines").open = true;
  area.value = JSON.stringify(table, null, 1);
  const found = await ask("machines", { text: area.value }).catch(() => null);
  if (!found) return;
  Object.assign(machines, { words: found.words, price: found.usd_per_gpu_hour });
  machinesNote(`${found.words}.`);
  showPrice();
}
