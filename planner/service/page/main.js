// From a change to an answer: a quick one first, then its reasons, then the drawings.
const QUIET = 350; // milliseconds without typing
const now = { plan: null, drawn: null, reading: null };
const at = (id) => document.getElementById(id);

function tellStatus(text, busy = false) {
  at("status").textContent = text;
  at("answer").setAttribute("aria-busy", String(busy));
  document.body.classList.toggle("busy", busy);
}

async function answer() {
  clearErrors();
  filesNote("");
  tellStatus("Searching …", true);
  try {
    if (Object.keys(state.files).length) await answerFiles();
    else await answerQuestion();
  } catch (error) {
    showRefusal(error);
  }
}

async function answerQuestion() {
  const body = question();
  now.reading = null;
  const quick = await ask("plan", { ...body, reasons: false, top: 0 }, "answer");
  if (!quick) return;
  show(quick, null);
  tellStatus("Looking for reasons and other plans …", true);
  const full = quick.prediction ? await ask("plan", body, "answer") : quick;
  if (!full) return;
  show(full, null);
  await showDrawn(full);
}

async function answerFiles() {
  const reading = await ask("read", { files: state.files, ...besideFiles() }, "answer");
  if (!reading) return;
  if (modelAlone(reading)) {
    state.files = {};
    showFiles();
    set("model", reading.request.model);
    showForm();
    return;
  }
  now.reading = reading;
  if (reading.answer?.prediction) show(reading.answer, null);
  else showOnly(readingSection(reading));
  if (reading.answer?.prediction) await showDrawn(reading.answer);
  else tellStatus("");
}

async function showDrawn(plan) {
  if (plan.prediction) {
    const drawn = await ask("drawn", { plan });
    if (!drawn) return;
    show(plan, drawn);
  }
  tellStatus("");
}

function showRefusal(error) {
  tellStatus("");
  const beside = state.files && Object.keys(state.files).length && !error.field ? (filesNote(error.message), true) : showError(error.field, error.message);
  at("answer").classList.add("stale");
  at("refusal").replaceChildren(...(beside ? [html("p", {}, "Mend what is marked in the form: ", error.message)] : [html("p", { role: "alert" }, `⚠ ${error.message}`)]));
}

function showOnly(...sections) {
  at("refusal").replaceChildren();
  at("answer").classList.remove("stale");
  at("summary").replaceChildren();
  at("sections").replaceChildren(...sections.filter(Boolean));
}

// All of an answer; what is not known yet is left out, and stands still where it is.
function show(plan, drawn) {
  const same = now.plan === plan;
  Object.assign(now, { plan, drawn });
  at("refusal").replaceChildren();
  at("answer").classList.remove("stale");
  showTaken(plan.request);
  at("summary").replaceChildren(...headline(plan), html("div", { class: "cards" }, ...cards(plan)), ...warningsOf(plan), toolbar(plan));
  document.title = plan.prediction ? `${shortName(plan.request.model)}, ${plan.request.gpus} GPUs: ${seconds(plan.prediction.iteration_seconds)} – meshwright` : "meshwright";
  if (same && at("drawings")) return showDrawings(plan, drawn);
  const reasons = plan.prediction && !now.reading;
  at("sections").replaceChildren(...[
    now.reading && readingSection(now.reading),
    plan.prediction && html("div", { id: "drawings" }),
    reasons && othersSection(plan, drawn),
    reasons && otherwiseSection(plan),
    adviceSection("helps", "What would help", null, plan.what_helps),
    reasons && adviceSection("why-not", "Why not the usual other choices", null, plan.why_not),
    plan.prediction && plan.fits && launchSection(plan),
    assumedSection(plan),
  ].filter(Boolean));
  return showDrawings(plan, drawn);
}

function warningsOf(plan) {
  if (!plan.warnings.length) return [];
  return [html("div", { class: "warnings", role: "note" }, ...plan.warnings.map((line) => html("p", {}, `⚠ ${line}`)))];
}

function showDrawings(plan, drawn) {
  if (!drawn) return;
  if (at("comparison") && compared.place != null) compared.show();
}

buildForm(at("question"));
at("question").append(uploadPanel());
at("question").addEventListener("submit", (event) => event.preventDefault());
fromFragment(location.hash.slice(1));
showForm();
listeners.push(settled(QUIET, answer), showPrice);
window.addEventListener("hashchange", () => {
  if (location.hash.slice(1) === fragment()) return;
  fromFragment(location.hash.slice(1));
  showForm();
  answer();
});
window.addEventListener("beforeprint", () => document.querySelectorAll("main details").forEach((one) => { one.open = true; }));
fetched("/v1/choices").then(offer).then(() => { if (now.plan) show(now.plan, now.drawn); }).catch(() => tellStatus(""));
answer();
