// Why not: sliders of the layout; each move asks what the best plan with that value costs, term by term.
const SLIDERS = ["tp", "cp", "pp", "vpp", "ep", "micro_batch_size", "zero_stage"];
const moved = {};

function otherwiseSection(plan) {
  const { strategy, request } = plan, place = html("div", { id: "otherwise-answer", "aria-live": "polite" },
    small("Move a slider. What you leave alone is chosen anew, as well as it can be."));
  for (const name of Object.keys(moved)) delete moved[name];
  const look = settled(220, () => askOtherwise(plan, place));
  const rows = SLIDERS.map((name) => slider(name, stepsOf(name, strategy, request), strategy[name], look)).filter(Boolean);
  const reset = html("button", { type: "button", onclick: () => { for (const row of rows) row.reset(); look(); } }, "Back to the best");
  return panel("otherwise", "Why not otherwise?", null, html("div", { class: "sliders" }, ...rows.map((row) => row.element), reset), place);
}

// Values that a slider stops at: powers of two up to what there is, and the value that was chosen.
function stepsOf(name, strategy, request) {
  if (name === "zero_stage") return [0, 1, 2, 3];
  const experts = request.model?.moe?.num_experts ?? 1;
  const most = { tp: 64, cp: 64, pp: request.model?.num_layers ?? 64, vpp: 16, ep: experts, micro_batch_size: 64 }[name];
  const steps = new Set([strategy[name]]);
  for (let value = 1; value <= Math.min(most, name === "vpp" || name === "micro_batch_size" ? most : request.gpus); value *= 2) steps.add(value);
  return [...steps].sort((a, b) => a - b);
}

function slider(name, steps, chosen, look) {
  if (steps.length < 2) return null;
  const at = steps.indexOf(chosen), output = html("output", { for: `slider-${name}` }, String(chosen));
  const say = () => {
    const value = steps[input.value];
    output.textContent = value === chosen ? String(value) : `${value} (was ${chosen})`;
    input.setAttribute("aria-valuetext", output.textContent);
    if (value === chosen) delete moved[name];
    else moved[name] = value;
  };
  const input = html("input", { type: "range", id: `slider-${name}`, min: 0, max: steps.length - 1, step: 1, value: at, "aria-valuetext": String(chosen), oninput: () => { say(); look(); } });
  const label = html("label", { for: `slider-${name}`, title: MEANINGS[name] }, AXES[name].label);
  return { element: html("div", { class: "slider" }, label, input, output), reset: () => { input.value = at; say(); } };
}

async function askOtherwise(plan, place) {
  const pins = Object.fromEntries(Object.entries(moved).map(([name, value]) => [name, String(value)]));
  if (!Object.keys(pins).length) return place.replaceChildren(small("This is the best plan."));
  place.setAttribute("aria-busy", "true");
  try {
    const asked = question();
    const found = await ask("why-not", { ...asked, pins: { ...asked.pins, ...pins } }, "otherwise");
    if (found) place.replaceChildren(...whyNot(found, pins));
  } catch (error) {
    place.replaceChildren(warning(error.message));
  }
  return place.removeAttribute("aria-busy");
}

function whyNot(found, pins) {
  const { iteration_seconds: mine, best_iteration_seconds: best } = found, share = mine && best ? mine / best - 1 : null;
  const moves = Object.entries(pins).map(([name, value]) => `${AXES[name].label} ${value}`).join(", ");
  const words = html("p", { class: share == null ? "verdict bad" : "verdict" }, html("strong", {}, `${moves}: ${share == null ? "does not run" : change(share)}. `), inForm(found.verdict));
  const rest = found.strategy ? [small(`The best with it: ${strategyInWords(found.strategy)}`)] : [];
  const rules = found.rules.length ? [listed(found.rules.slice(0, 4).map((one) => `${one.rule.replaceAll("-", " ")}: ${one.example}`))] : [];
  const near = found.nearest ? [small(html("b", {}, "This works: "), inForm(`${found.nearest.subject}: ${found.nearest.text}`))] : [];
  const pin = html("button", { type: "button", onclick: () => { for (const [name, value] of Object.entries(pins)) set(name, value, { quiet: true }); changed(); showForm(); } }, "Pin this in the form");
  return [words, ...rest, ...rules, ...near, ...termsOf(found, moves), ...(share == null ? [] : [pin])];
}

// Term by term, as plans are compared.
function termsOf({ terms, iteration_seconds: mine, best_iteration_seconds: best }, moves) {
  if (!Object.keys(terms).length) return [];
  const side = (i) => Object.fromEntries(Object.entries(terms).map(([name, pair]) => [name, pair[i]]));
  const host = html("div");
  mount(host, (width) => compared({ terms: side(1), seconds: best, axes: { plan: "best" } }, { terms: side(0), seconds: mine, axes: { plan: `with ${moves}` } }, width))();
  return [host];
}
