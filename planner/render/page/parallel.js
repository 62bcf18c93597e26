// A study at a glance: every plan as a line over all axes, and how much of the spread each axis explains.
const LINES = 2000; // more cannot be distinguished, nor printed
const TENTH = 0.1;

function parallelLines(all, axes, width, again, state) {
  const figures = ["mfu", "days", "cost", "gib"].filter((figure) => distinct(all.map((point) => point[figure]).filter((value) => value != null)).length > 1);
  const priced = all.filter((point) => point.seconds != null && figures.every((figure) => point[figure] != null));
  if (priced.length < 2 || !figures.length) return null;
  if (!figures.includes(state.figure)) state.figure = figures.includes("days") ? "days" : figures[0];
  const controls = html("div", { class: "controls" }, choice("the best tenth by", figures.map((figure) => [figure, FIGURES[figure].name]), state.figure, (value) => { state.figure = value; again(); }));
  const worse = (point) => FIGURES[state.figure].less ? point[state.figure] : -point[state.figure];
  const sorted = [...priced].sort((a, b) => worse(a) - worse(b)), every = Math.max(1, sorted.length / LINES);
  const drawn = Array.from({ length: Math.min(sorted.length, LINES) }, (_, i) => sorted[Math.floor(i * every)]);
  const varied = axes.filter((axis) => distinct(priced.map((point) => axisValue(point, axis))).length > 1);
  const columns = [...varied.map((axis) => ({ axis, name: named(axis), of: (point) => axisValue(point, axis) })),
    ...figures.map((figure) => ({ figure, name: FIGURES[figure].name, of: (point) => point[figure] }))];
  const wide = Math.max(width, columns.length * 88), high = 380, left = 44, gap = (wide - left - 70) / Math.max(columns.length - 1, 1);
  const text = `Best: ${told(sorted[0]).join("; ")}`;
  const figure = canvas(wide, high, `${counted(priced.length, "plan")} over ${columns.map(({ name }) => name).join(", ")}`, text);
  figure.style.minWidth = `${wide}px`;
  const places = columns.map((column, i) => upright(column, drawn, high)), xs = columns.map((_, i) => left + i * gap);
  const best = Math.max(1, Math.round(drawn.length * TENTH)), paths = ["", ""];
  const lines = drawn.map((point, i) => places.map((place) => place(point, i / drawn.length)));
  const path = (ys) => ys.map((y, j) => `${j ? "L" : "M"}${xs[j].toFixed(0)} ${y.toFixed(1)}`).join("");
  lines.forEach((ys, i) => { paths[i < best ? 1 : 0] += path(ys); });
  figure.append(svg("path", { d: paths[0], class: "many" }), svg("path", { d: paths[1], class: "best c1 stroke" }));
  columns.forEach((column, i) => axisOf(figure, column, places[i], xs[i], gap, high));
  const hot = svg("path", { class: "hotline" });
  figure.append(hot);
  const marks = drawn.map((point, i) => ({ x: xs.at(-1), y: lines[i].at(-1), ys: lines[i], get lines() { return told(point); } }));
  heard(figure, (x, y) => lineAt(marks, xs, x, y), marks, (mark) => hot.setAttribute("d", mark ? path(mark.ys) : ""));
  const entries = [{ sign: tiny(svg("path", { d: "M0 7H30", class: "best c1 stroke" })), text: `the best tenth by ${FIGURES[state.figure].name}` }, { sign: tiny(svg("path", { d: "M0 7H30", class: "many" })), text: "other plans" }];
  const cut = drawn.length < priced.length ? [caption(`${drawn.length.toLocaleString("en")} of ${priced.length.toLocaleString("en")} lines are drawn, evenly from best to worst`)] : [];
  return [controls, html("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "plans as lines" }, figure), legend(entries), ...cut];
}

// Places of values on an axis: steps where there are few values, else a scale; of figures the better end is up.
function upright(column, drawn, high) {
  const values = inOrder(distinct(drawn.map(column.of))), [top, bottom] = [46, high - 16];
  const flip = column.figure && FIGURES[column.figure].less, [from, to] = flip ? [top, bottom] : [bottom, top];
  if (column.axis && (values.length <= 12 || values.some((value) => typeof value !== "number"))) {
    const step = (to - from) / Math.max(values.length - 1, 1), order = new Map(values.map((value, i) => [value, i])), loose = Math.min(14, Math.abs(step) / 3);
    const place = (point, share) => (values.length > 1 ? from + order.get(column.of(point)) * step : (from + to) / 2) + (share - 0.5) * loose;
    return Object.assign(place, { marks: values.map((value, i) => [values.length > 1 ? from + i * step : (from + to) / 2, label(value)]) });
  }
  const along = scale(values, from, to, { log: values[0] > 0 && values.at(-1) > 5 * values[0], every: 44 });
  const show = column.figure ? FIGURES[column.figure].show : label;
  return Object.assign((point) => along(column.of(point)), { marks: along.ticks.map((tick) => [along(tick), show(tick)]) });
}

function axisOf(figure, { name, figure: of }, { marks }, x, gap, high) {
  figure.append(svg("path", { d: `M${x} 40V${high - 10}`, class: "axis" }));
  figure.append(svg("text", { x: x - 36, y: 16, class: "strong" }, clipped(name, gap - 6)));
  if (of) figure.append(svg("text", { x: x - 36, y: 31, class: "soft small" }, FIGURES[of].less ? "less is up" : "more is up"));
  let last = -Infinity;
  for (const [y, text] of [...marks].sort(([a], [b]) => a - b)) {
    if (y - last < 13) continue;
    last = y;
    figure.append(svg("text", { x: x + 6, y: y + 4, class: "halo" }, clipped(text, gap)));
  }
}

function lineAt(marks, xs, x, y) {
  const i = Math.min(Math.max(xs.findIndex((place) => place > x) - 1, 0), xs.length - 2), share = Math.min(Math.max((x - xs[i]) / (xs[i + 1] - xs[i]), 0), 1);
  let best = null, least = 9;
  for (const mark of marks) {
    const away = Math.abs(mark.ys[i] + (mark.ys[i + 1] - mark.ys[i]) * share - y);
    if (away < least) [best, least] = [mark, away];
  }
  return best;
}

// A row an axis, a column a figure; the bar is the share of the figure's spread that the axis explains alone.
function importanceTable(importance) {
  const figures = Object.keys(importance ?? {}), axes = distinct(figures.flatMap((figure) => Object.keys(importance[figure])));
  if (!axes.length) return null;
  const weight = (axis) => Math.max(...figures.map((figure) => importance[figure][axis] ?? 0));
  const bar = (share) => share == null ? "–" : html("span", { class: "share" },
    svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("rect", { width: Math.max(100 * share, 0.5), height: 10, class: "c0 fill" })), percent(share));
  const rows = axes.sort((a, b) => weight(b) - weight(a)).map((axis) => [named(axis), ...figures.map((figure) => bar(importance[figure][axis]))]);
  return table(["axis", ...figures.map((figure) => FIGURES[figure].name)], rows, { name: "importance of axes" });
}
