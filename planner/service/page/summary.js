// The answer in one sentence, its cards, and what may be wrong with it; or why nothing fits, and what does.
function summary(plan, drawn) {
  const words = inForm(drawn.headline).replace(/^given on/, "Your model on"), sentence = headline({ headline: words });
  if (!plan.prediction) {
    const [, job, failed, why] = /^(.*?: )([^:]*)(: .*)$/.exec(words) ?? [];
    if (failed) sentence.replaceChildren(html("span", { class: "job" }, job), html("strong", { class: "bad" }, failed), html("span", { class: "unseen" }, why.slice(0, 2)), why[2].toUpperCase() + why.slice(3));
    return [sentence, ...refusedIn(plan)];
  }
  const [, start, layout, rest] = /^(.*?: )([^:]*)(: .*)$/.exec(words) ?? [];
  if (layout) sentence.replaceChildren(html("span", { class: "job" }, start), html("strong", {}, layout.split(", ").map((one) => one.replaceAll(" ", "\u00a0")).join(", ")),
    html("span", { class: "unseen" }, rest.slice(0, 2)), unbroken(rest.slice(2)));
  const list = cards(drawn.plan.cards);
  drawn.plan.cards.forEach(({ value, meaning }, i) => {
    list.children[i].querySelector("h2").title = meaning;
    list.children[i].querySelector(".value").classList.toggle("long", value.length > 12);
  });
  for (const [i, gauge] of gauges(plan, drawn.plan.cards)) list.children[i].querySelector(".value").after(gauge);
  return [html("div", { class: "opening" }, sentence, toolbar(plan)), list, ...warningsOf(plan)];
}

function warningsOf(plan) {
  const lines = plan.warnings.map((line) => warning(line, "plain"));
  const choices = (plan.choices ?? []).map((one) => html("p", {}, "With ", html("b", {}, inForm(one.subject)), `: ${inForm(one.text)}.`));
  return [["warnings", lines], ["settings", choices]].filter(([, some]) => some.length).map(([kind, some]) => html("div", { class: kind, role: "note" }, ...some));
}

function refusedIn(plan) {
  const near = plan.nearest ? [html("p", { class: "near" }, html("b", {}, "This works: "), inForm(`${plan.nearest.subject}: ${plan.nearest.text}`),
    plan.nearest.iteration_seconds ? ` (${seconds(plan.nearest.iteration_seconds)} an iteration) ` : " ", ...unpin(plan.nearest.subject), ...asksFor(plan.nearest))] : [];
  const against = plan.rejected.map((one) => html("li", {}, html("b", {}, one.rule.replaceAll("-", " ")), `: ${inForm(one.example)}`));
  return [...near, ...(plan.nothing_near ? [html("p", {}, inForm(plan.nothing_near))] : []),
    html("details", { open: against.length < 6 }, html("summary", {}, "What stands against it"), html("ul", {}, ...against))];
}

// Where one pin is to blame, it says so itself, and can be left open.
function unpin(subject) {
  const axis = offered?.options[/^without --(\S+)$/.exec(subject)?.[1]];
  if (!(axis in AXES)) return [];
  showError(axis, "Nothing fits with this value.");
  return [html("button", { type: "button", onclick: () => { set(axis, ""); showForm(); } }, `Leave ${AXES[axis].label} open`)];
}

// Where another number of GPUs works, the form can ask for it.
function asksFor({ subject, text }) {
  const [, gpus] = /^([\d,]+) GPUs?$/.exec(subject) ?? [], [, batch] = /--global-batch (\d+)/.exec(text) ?? [];
  if (!gpus) return [];
  const ask = () => { set("gpus", gpus.replaceAll(",", "")); if (batch) set("global_batch_size", batch); showForm(); };
  return [html("button", { type: "button", onclick: ask }, `Plan for ${subject}`)];
}

// Bars below the figures of three cards: where time and MFU may lie, and how full the memory is.
function gauges({ prediction, memory_bytes: stages, fits }, list) {
  const { low, high } = prediction.interval, useful = prediction.mfu * prediction.iteration_seconds, names = list.map((one) => one.name);
  const share = Math.max(...stages.map((stage) => stage.total / stage.limit)), state = !fits || share > 1 ? "bad" : share > 0.97 ? "warn" : "good";
  return [["Time", interval(low, prediction.iteration_seconds, high)], ["MFU", interval(useful / high, prediction.mfu, useful / low)],
    ["Memory", gauge(state, bar(0, 2, Math.min(100 * share, 100), 4, "span"))]].map(([name, drawing]) => [names.indexOf(name), drawing]).filter(([i]) => i >= 0);
}

const bar = (x, y, width, height, kind) => svg("rect", { x, y, width, height, class: kind });
const gauge = (kind, ...marks) => svg("svg", { viewBox: "0 0 100 8", class: `gauge ${kind}`, "aria-hidden": "true", preserveAspectRatio: "none" }, bar(0, 2.5, 100, 3, "track"), ...marks);

function interval(low, value, high) {
  const from = low - 0.15 * (high - low), place = (one) => 100 * (one - from) / (1.3 * (high - low));
  return gauge("", bar(place(low), 2, place(high) - place(low), 4, "span"), bar(place(value) - 0.8, 0, 1.6, 8, "mark"));
}
