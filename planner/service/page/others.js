// The drawings, other plans to compare, what would help, and what was taken for granted.
const redrawn = [];

// What is drawn again gives the keyboard back the place that it had.
function keepingFocus(body, draw) {
  const all = () => [...body.querySelectorAll("select, input, summary, [tabindex]")];
  return (width, again) => {
    const place = all().indexOf(document.activeElement);
    if (place >= 0) queueMicrotask(() => all()[place]?.focus({ preventScroll: true }));
    return draw(width, again);
  };
}

// Each drawing stands in a place of its own, for whatever answer there is.
function buildDrawings(host) {
  for (const [id, title, text, draw] of DRAWINGS) {
    const body = html("div"), box = panel(id, title, text, body);
    box.hidden = true;
    host.append(box);
    redrawn.push(mount(body, keepingFocus(body, (width, again) => {
      const parts = now.drawn?.plan ? draw(now.drawn, width, again) || null : null;
      box.hidden = parts === null;
      return parts;
    })));
  }
}

function othersSection(plan, drawn) {
  if (drawn.points.length < 2) return null;
  let place = 1;
  const body = html("div"), button = html("button", { type: "button", onclick: () => pinStrategy(plan.alternatives[place - 1].strategy) }, "Pin the chosen plan in the form");
  const again = mount(body, keepingFocus(body, (width, anew) => alternatives(drawn.points, width, anew, { picked: place, onpick: (_plan, i) => { place = i; button.disabled = i === 0; } })));
  again();
  const cut = plan.alternatives_complete ? [] : [small("Time ran out: there may be others.")];
  return panel("others", "Other plans", "Choose one to see what each term of its time costs against the best.", body, ...cut, button);
}

// Pin what a strategy is, so that the next answer is that one.
function pinStrategy(strategy) {
  for (const name of Object.keys(AXES)) if (strategy[name] != null) set(name, String(strategy[name]), { quiet: true });
  changed();
  showForm();
}

const ADVICE = {
  helps: "What an iteration of the best plan gains where the machines or the job are otherwise.",
  against: "What the best plan with that choice takes, and the terms that change most.",
};
function adviceSection(id, title, several, plan) {
  if (!several?.length) return null;
  const base = plan.prediction?.iteration_seconds, timed = base && !["goodput", "memory"].includes(plan.request.objective);
  const gaps = several.map((one) => timed && one.iteration_seconds ? one.iteration_seconds / base - 1 : 0), most = Math.max(...gaps.map(Math.abs));
  const words = (text) => unbroken(inForm(text).replaceAll(" -> ", " → ").replace(/(^|[ (])-(?=\d)/g, "$1−"));
  return panel(id, title, ADVICE[id], html("ul", { class: most ? "advice drawn" : "advice" }, ...several.map((one, i) => html("li", {},
    html("b", {}, inForm(one.subject)), ...(most ? [gainBar(gaps[i], most)] : []), html("span", {}, words(one.text))))));
}

// What a change saves or costs, as long as its share of the iteration; the words next to it say the same.
const gainBar = (gap, most) => svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true", class: "gain" },
  svg("rect", { width: 100 * Math.min(Math.abs(gap) / Math.min(most, 1), 1), height: 10, rx: 1, class: `c${gap < 0 ? 2 : 1} fill` }));

function assumedSection(plan) {
  const proof = plan.proof ? [html("h3", {}, "Proof"), listed([plan.proof.statement, ...(plan.proof.scope ?? []).map((one) => `among strategies ${one}`)])] : [];
  return panel("assumed", "What was taken for granted", "Say it in the form where it is otherwise.", listed(plan.defaults ?? []),
    html("details", {}, html("summary", {}, "Proof and sources"), ...proof, html("h3", {}, "Sources"), listed(plan.provenance.sources),
      small(`version ${plan.provenance.version}, catalogue ${plan.provenance.catalogue_hash}`)));
}
