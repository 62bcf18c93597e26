// Filters, the table, and what makes the page.
const state = { text: "", front: false, hidden: new Map(), sort: STUDY ? null : "seconds", down: false, rows: 40 };
const FILTERED = [...DATA.axes, "status"].filter((axis) => distinct(points.map((point) => filterValue(point, axis))).length > 1);
const SEARCHED = new Map(points.map((point) => [point, [where(point), point.strategy, point.status, point.note].join(" ").toLowerCase()]));
function filterValue(point, axis) { return axis === "status" ? point.status : label(axisValue(point, axis)); }

function chosenPoints() {
  const text = state.text.trim().toLowerCase();
  return points.filter((point) => (!text || SEARCHED.get(point).includes(text)) && (!state.front || FRONT.has(point))
    && FILTERED.every((axis) => !state.hidden.get(axis)?.has(filterValue(point, axis))));
}

function filters() {
  const box = html("div", { class: "filters" });
  for (const axis of FILTERED) {
    const values = inOrder(distinct(points.map((point) => filterValue(point, axis))));
    if (values.length > 16 || (!STUDY && axis === "plan")) continue;
    const hidden = new Set();
    state.hidden.set(axis, hidden);
    box.append(html("fieldset", {}, html("legend", {}, named(axis)), html("div", { class: "choices" }, ...values.map((value) => {
      const input = html("input", { type: "checkbox", checked: true, onchange: () => { if (input.checked) hidden.delete(value); else hidden.add(value); redraw(); } });
      return html("label", {}, input, " ", value);
    }))));
  }
  const search = html("input", { type: "search", placeholder: "text, such as TP 8", "aria-label": "text to look for", oninput: () => { state.text = search.value; redraw(); } });
  const front = html("input", { type: "checkbox", onchange: () => { state.front = front.checked; redraw(); } });
  box.append(html("fieldset", {}, html("legend", {}, "also"), html("div", { class: "choices" }, search, html("label", {}, front, " Pareto front only"))));
  return box;
}

const COLUMNS = [
  ...DATA.axes.map((axis) => ({ key: axis, name: named(axis), of: (point) => axisValue(point, axis), show: label })),
  ...(FILTERED.includes("status") ? [{ key: "status", name: "status", of: (point) => point.status, show: label }] : []),
  ...["seconds", "mfu", "days", "cost", "gib", "rate", "speedup"].filter(present).map((figure) => (
    { key: figure, name: figure === "seconds" ? "iteration" : FIGURES[figure].name, of: (point) => point[figure], show: (value) => said(figure, value), number: true })),
  { key: "front", name: "front", of: (point) => FRONT.has(point) ? "◆" : null, show: (value) => value ?? "" },
  { key: "strategy", name: "strategy", of: (point) => point.strategy, show: (value) => value ?? "", wide: true },
  { key: "note", name: "note", of: (point) => point.note, show: (value) => value ?? "", wide: true },
];

function sorted(some) {
  const column = COLUMNS.find(({ key }) => key === state.sort);
  if (!column) return some;
  const sign = state.down ? -1 : 1;
  return [...some].sort((p, q) => {
    const [a, b] = [column.of(p), column.of(q)];
    if (a == null || b == null) return (a == null) - (b == null);
    return sign * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
  });
}

function drawTable(some, _width, again) {
  const heads = COLUMNS.map(({ key, name, number }) => html("th",
    { class: number ? "number" : null, "aria-sort": state.sort === key ? (state.down ? "descending" : "ascending") : null },
    html("button", { type: "button", onclick: () => { state.down = state.sort === key && !state.down; state.sort = key; again(); } },
      name, state.sort === key ? (state.down ? " ↓" : " ↑") : "")));
  const rows = sorted(some).slice(0, state.rows).map((point) => COLUMNS.map(({ key, name, of, show, number, wide }) =>
    html("td", { class: number ? "number" : key === "note" && point.seconds == null ? "wide bad" : wide ? "wide" : String(of(point) ?? "").length > 18 ? "name" : "name keep", "data-head": name }, show(of(point)))));
  const parts = [html("p", { class: "caption", id: "count" }, `${some.length.toLocaleString("en")} of ${points.length.toLocaleString("en")} rows`),
    stacking("points", { class: "points" }, heads, rows)];
  if (some.length > state.rows) parts.push(html("p", { class: "more" }, html("button", { type: "button", onclick: () => { state.rows *= 5; again(); } }, "show more rows")));
  return parts;
}

function drawAdvice() {
  const advice = DATA.plan?.advice ?? [];
  return advice.length ? table(["question", "about", ["answer", "wide"]], advice, { name: "reasons" }) : null;
}

const PARETO = "What no other plan beats in both. Less is better on every axis; plans of one job are compared.";
const plan = DATA.plan;
if (plan) {
  document.getElementById("cards").append(cards(plan.cards ?? []));
  section("Warnings", "", () => plan.warnings?.length ? html("ul", { class: "assumptions" }, ...plan.warnings.map((text) => html("li", {}, text))) : null, { long: true });
  for (const [id, title, text, draw] of DRAWINGS) {
    section(title, text, (_some, width, again) => draw(DATA, width, again), { half: id === "memory" });
    if (id === "memory") section("Pareto front", PARETO, drawPareto, { half: true });
  }
  section("Alternatives", "Pick a plan to see in what it differs from the best. “=” is as fast as the best, as far as can be told.",
    (some, width, again) => some.length > 1 ? alternatives(points, width, again) : null, { long: true });
} else {
  const view = { figure: JOBS.length > 1 ? "mfu" : "days" };
  section("All plans at a glance", "A line for each plan, through its choices on the left and its results on the right. See where the lines of the best run together.",
    (some, width, again) => parallelLines(some, DATA.axes, width, again, view));
  section("What decides the result", "How much of the spread of a result each axis explains alone: the variance between the means of its values, over all variance, of logarithms. Axes that act together share what they explain.",
    () => importanceTable(DATA.importance));
  if (points.length > 1) { const box = filters(); section("Filter", "All figures and the table show what is chosen here.", () => box); }
  section("Scaling", "Each mark is the best of the points that share its place.", drawCurves);
  section("Two axes", "Each cell is the best point of its row and column.", drawHeat, { half: true });
  section("Pareto front", PARETO, drawPareto, { half: true });
  section("Where the time goes", "", (some, width, again) => timeBars(sorted(some), width, again));
  section("Points", "Click a heading to sort.", drawTable, { long: true });
}
section("Reasons", "", drawAdvice, { long: true });
section("How far to trust it", "The measured runs that this version was compared with; a ratio of 1 is right.",
  (_some, width) => measuredRuns(DATA.measured, plan?.nearest ?? [], width));
redraw();
