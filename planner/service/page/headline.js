// The answer in one sentence, and five figures with what bounds each.
function headline(plan) {
  const { request, prediction, strategy } = plan;
  const job = `${nameIn(request.model)} on ${plural(request.gpus, "GPU")} of ${shortName(request.cluster)}`;
  if (!prediction || !strategy) return [html("h2", { class: "answer" }, `${job}: nothing fits.`), ...refusedIn(plan)];
  const degrees = degreesOf(strategy).map(([name, word]) => `${word} ${strategy[name]}`).join(", ");
  const cost = prediction.cost_dollars == null ? "" : ` and costs ${dollars(prediction.cost_dollars)}`;
  const training = request.tokens ? ` Training on ${tokensInWords(request.tokens)} tokens takes ${durationInWords(prediction.training_days)}${cost}.` : "";
  return [
    html("h2", { class: "answer" }, `${job}: `, html("strong", {}, degrees),
      ` takes ${seconds(prediction.iteration_seconds)} an iteration, ${percent(prediction.mfu)} MFU.${training}`),
    html("p", { class: "proof" }, html("span", { class: "chips" },
      ...degreesOf(strategy).map(([name, word]) => html("abbr", { class: "chip", title: MEANINGS[name] }, `${word} ${strategy[name]}`)),
      ...restOf(strategy).map((words) => html("span", { class: "chip soft" }, words))),
    html("span", { class: "soft" }, plan.fits ? plan.proof?.statement ?? "" : "It does not fit in memory.")),
  ];
}

function refusedIn(plan) {
  const lines = plan.rejected.map((one) => html("li", {}, html("b", {}, one.rule.replaceAll("-", " ")), `: ${one.example}`));
  const near = plan.nearest ? [html("p", { class: "near" }, html("b", {}, "This works: "), `${plan.nearest.subject}: ${plan.nearest.text}`,
    plan.nearest.iteration_seconds ? ` (${seconds(plan.nearest.iteration_seconds)} an iteration)` : "", " ", ...unpin(plan.nearest.subject))] : [];
  return [...near, ...(plan.nothing_near ? [html("p", {}, plan.nothing_near)] : []),
    html("details", { open: lines.length < 6 }, html("summary", {}, "What stands against it"), html("ul", {}, ...lines))];
}

function unpin(subject) {
  const axis = /without the pinned (\w+)/.exec(subject)?.[1];
  if (!axis || !(axis in AXES)) return [];
  showError(axis, "Nothing fits with this value.");
  return [html("button", { type: "button", onclick: () => { set(axis, ""); showForm(); } }, `Leave ${AXES[axis].label} open`)];
}

function cards(plan) {
  const { prediction } = plan;
  if (!prediction) return [];
  return [timeCard(plan), mfuCard(plan), costCard(plan), memoryCard(plan), riskCard(plan)];
}

const card = (name, title, figure, ...below) => html("section", { class: "card", id: `card-${name}`, "aria-label": title },
  html("h3", {}, title), html("p", { class: "figure" }, figure), ...below);
const small = (...text) => html("p", { class: "small" }, ...text);

// A bar from low to high with a mark where the value is.
function range(low, value, high, words) {
  const from = low - 0.15 * (high - low), to = high + 0.15 * (high - low), at = (one) => 100 * (one - from) / (to - from);
  return svg("svg", { viewBox: "0 0 100 8", class: "range", role: "img", "aria-label": words, preserveAspectRatio: "none" },
    svg("rect", { x: 0, y: 3, width: 100, height: 2, class: "track" }),
    svg("rect", { x: at(low), y: 2, width: at(high) - at(low), height: 4, class: "span" }),
    svg("rect", { x: at(value) - 0.8, y: 0, width: 1.6, height: 8, class: "mark" }));
}

function timeCard({ prediction }) {
  const { low, high, coverage } = prediction.interval, words = `${percent(coverage, 0)} sure: ${seconds(low)} to ${seconds(high)}`;
  return card("time", "Time an iteration", seconds(prediction.iteration_seconds), range(low, prediction.iteration_seconds, high, words), small(words));
}

function mfuCard({ prediction }) {
  const { low, high, coverage } = prediction.interval, useful = prediction.mfu * prediction.iteration_seconds;
  const [least, most] = [useful / high, Math.min(useful / low, 1)];
  const words = `${percent(coverage, 0)} sure: ${percent(least)} to ${percent(most)}`;
  return card("mfu", "MFU", percent(prediction.mfu), range(least, prediction.mfu, most, words),
    small(words), small(`${whole(Math.round(prediction.tokens_per_second))} tokens/s`));
}

function costCard({ prediction, request, goodput }) {
  if (prediction.cost_dollars == null) {
    return card("cost", "Cost", "no price", small("The catalogue has no price of these GPUs; give one in the form."));
  }
  const wall = goodput?.wall_cost_dollars ? [small(`with failures: ${dollars(goodput.wall_cost_dollars)}`)] : [];
  return card("cost", "Cost", dollars(prediction.cost_dollars),
    small(`${tokensInWords(request.tokens)} tokens, ${whole(Math.round(prediction.gpu_hours))} GPU-hours`),
    small(`${durationInWords(prediction.training_days)} without failures`), ...wall);
}

function memoryCard({ memory_bytes: stages, fits }) {
  const fullest = stages.reduce((most, one) => (one.total / one.limit > most.total / most.limit ? one : most));
  const share = fullest.total / fullest.limit, words = `${percent(share, 0)} of ${gib(fullest.limit).toFixed(1)} GiB usable`;
  const state = !fits || share > 1 ? ["bad", "It does not fit."] : share > 0.94 ? ["warn", "Close to the limit: it may run out of memory."] : ["good", ""];
  const gauge = svg("svg", { viewBox: "0 0 100 8", class: `range ${state[0]}`, role: "img", "aria-label": words, preserveAspectRatio: "none" },
    svg("rect", { x: 0, y: 2, width: 100, height: 4, class: "track" }), svg("rect", { x: 0, y: 2, width: Math.min(100 * share, 100), height: 4, class: "span" }));
  return card("memory", "Memory a GPU", `${gib(fullest.total).toFixed(1)} GiB`, gauge, small(words),
    ...(state[1] ? [html("p", { class: `small ${state[0]}` }, `⚠ ${state[1]}`)] : []));
}

// How far to trust it: whether runs like it were measured, and how well the nearest is predicted.
function riskCard({ trust, prediction, warnings }) {
  const width = prediction.interval.high / prediction.iteration_seconds - 1;
  const level = !trust || !trust.inside ? ["bad", "High", "Nothing like it was measured."] : width > 0.35 ? ["warn", "Medium", "Runs like it were measured."] : ["good", "Low", "Runs like it were measured."];
  const near = trust?.nearest[0];
  return card("risk", "Risk", level[1], html("p", { class: `small ${level[0]}` }, `${level[0] === "good" ? "✓" : "⚠"} ${level[2]}`),
    small(`It may take ${percent(width, 0)} longer.`),
    ...(near ? [small(`Nearest run: ${near.model} on ${plural(near.gpus, "GPU")}, predicted ${near.error >= 0 ? "+" : "−"}${percent(Math.abs(near.error))}`)] : []),
    ...(warnings.length ? [small(`${plural(warnings.length, "warning")} below`)] : []));
}
