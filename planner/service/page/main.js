// From a change to an answer: a quick one first, then its reasons, then the drawings.
const QUIET = 350; // milliseconds without typing
const now = { plan: null, drawn: null, reading: null, whole: false };
const at = (id) => document.getElementById(id);

function tellStatus(text, busy = false) {
  at("status").textContent = text;
  at("answer").setAttribute("aria-busy", String(busy));
  document.body.classList.toggle("busy", busy);
}

async function answer() {
  clearErrors();
  filesNote("");
  stop("drawn"); // of the answer before, which then goes no further
  tellStatus("Searching …", true);
  try {
    if (state.files.size) await answerFiles();
    else await answerQuestion();
  } catch (error) {
    showRefusal(error);
  }
}

async function answerQuestion() {
  const body = question();
  const quick = await ask("plan", { ...body, reasons: false, top: 0 }, "answer");
  if (!quick) return;
  now.reading = null;
  if (!await show(quick, false)) return;
  if (quick.prediction) {
    tellStatus("Looking for reasons and other plans …", true);
    const full = await ask("plan", body, "answer");
    if (!full || !await show(full, true)) return;
  }
  tellStatus("");
}

async function answerFiles() {
  const reading = await ask("read", { files: Object.fromEntries(state.files), ...question(), ...besideFiles() }, "answer");
  if (!reading) return;
  if (machinesAlone(reading)) {
    const [text] = state.files.values();
    bringBack();
    return takeMachines(text);
  }
  if (modelAlone(reading)) {
    bringBack({ model: reading.request.model });
    return;
  }
  now.reading = reading;
  if (reading.answer) await show(reading.answer, true);
  else showSections({ reading: readingSection(reading) });
  showMissing(reading);
  tellStatus("");
}

// An answer with its drawings; whole: with its reasons. False where a later answer took its place.
async function show(plan, whole) {
  const drawn = await ask("drawn", { plan });
  if (!drawn) return false;
  Object.assign(now, { plan, drawn, whole });
  showTaken(plan.request);
  document.title = plan.prediction ? `${shortName(plan.request.model)}, ${counted(plan.request.gpus, "GPU")}: ${seconds(plan.prediction.iteration_seconds)} – meshwright` : "meshwright";
  at("summary").replaceChildren(...summary(plan, drawn));
  showSections(whole || !plan.prediction ? sectionsOf(plan, drawn) : null);
  return true;
}

function sectionsOf(plan, drawn) {
  const searched = plan.prediction && !now.reading;
  return {
    reading: now.reading && readingSection(now.reading),
    others: searched && othersSection(plan, drawn),
    otherwise: searched && otherwiseSection(plan),
    helps: adviceSection("helps", "What would help", plan.what_helps, plan),
    against: searched && adviceSection("against", "Why not the usual other choices", plan.why_not, plan),
    launch: plan.prediction && plan.fits && launchSection(plan),
    assumed: assumedSection(plan),
  };
}

const SECTIONS = ["reading", "drawings", "others", "otherwise", "helps", "against", "launch", "assumed"];

// Put sections into their places; null leaves them as they are, until the reasons of an answer are there.
function showSections(parts) {
  at("refusal").replaceChildren();
  at("answer").classList.remove("stale");
  if (parts && !("assumed" in parts)) {
    Object.assign(now, { plan: null, drawn: null });
    at("summary").replaceChildren();
  }
  for (const draw of redrawn) draw();
  at("sections").classList.toggle("waiting", parts === null);
  if (parts) for (const name of SECTIONS) if (name !== "drawings") at(`part-${name}`).replaceChildren(...[parts[name]].filter(Boolean));
  showWays();
}

function showRefusal(error) {
  tellStatus("");
  const files = state.files.size > 0, placed = showError(error.field, error.message);
  if (files && !placed) filesNote(error.message);
  at("answer").classList.add("stale");
  at("refusal").replaceChildren(placed ? html("p", {}, `Mend what is marked in the form: ${inForm(error.message)}`) : html("p", { role: "alert" }, `⚠ ${inForm(error.message)}`));
}

// Ways to the sections that there are. Buttons, as the address says the question.
function showWays() {
  const there = [...document.querySelectorAll("#sections .block:not([hidden])")];
  at("jump").replaceChildren(...there.map((box) => html("button", { type: "button", onclick: () => box.scrollIntoView({ behavior: "smooth" }) }, WAYS[box.id] ?? box.id)));
}
const WAYS = { reading: "your files", others: "plans", otherwise: "what if", helps: "what helps", against: "why not", launch: "launch" };

for (const name of SECTIONS) at("sections").append(html("div", { id: `part-${name}` }));
buildDrawings(at("part-drawings"));
buildForm(at("question"));
at("question").append(uploadPanel());
at("question").addEventListener("submit", (event) => event.preventDefault());
fromFragment(location.hash.slice(1));
showForm();
listeners.push(settled(QUIET, answer), showPrice);
window.addEventListener("hashchange", () => {
  if (location.hash.slice(1) === fragment()) return;
  forgetFiles();
  fromFragment(location.hash.slice(1));
  showForm();
  answer();
});
window.addEventListener("beforeprint", () => document.querySelectorAll("main details").forEach((one) => { one.open = true; }));
fetched("/v1/choices").then(offer).then(() => { if (now.whole) at("part-launch").replaceChildren(...[now.plan.fits && launchSection(now.plan)].filter(Boolean)); }).catch(() => tellStatus(""));
answer();
