// Figures of a study: curves over an axis, a heat map of two axes, the Pareto front.
const NUMERIC = ["gpus", ...DATA.axes].filter((axis, i, all) => all.indexOf(axis) === i
  && points.every((point) => axisValue(point, axis) == null || typeof axisValue(point, axis) === "number")
  && distinct(points.map((point) => axisValue(point, axis)).filter((value) => value != null)).length > 1);
const CURVES = 8;

const curveState = { x: NUMERIC[0], by: "all" };
function bestOf(several, figure) {
  const less = FIGURES[figure].less;
  return several.reduce((best, point) => (less ? point[figure] < best[figure] : point[figure] > best[figure]) ? point : best);
}

function lines(some, x, by) {
  const axes = by === "all" ? DATA.axes.filter((axis) => axis !== x) : by === "none" ? [] : [by];
  const groups = new Map();
  for (const point of some) {
    if (point.seconds == null || axisValue(point, x) == null) continue;
    const name = axes.map((axis) => `${/^[\d.]/.test(label(axisValue(point, axis))) && axis !== "model" ? `${named(axis)} ` : ""}${label(axisValue(point, axis))}`).join(", ") || "all";
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(point);
  }
  return groups;
}

function drawCurves(some, width, again) {
  if (!STUDY || !curveState.x || !present("seconds")) return null;
  const others = DATA.axes.filter((axis) => axis !== curveState.x && distinct(points.map((point) => axisValue(point, axis))).length > 1);
  if (curveState.by === "all" && lines(points, curveState.x, "all").size > CURVES) {
    curveState.by = others.find((axis) => distinct(points.map((point) => axisValue(point, axis))).length <= CURVES) ?? "none";
  }
  const controls = html("div", { class: "controls" },
    choice("over", NUMERIC.map((axis) => [axis, named(axis)]), curveState.x, (value) => { curveState.x = value; again(); }),
    choice("a line for each", [["all", "combination of the others"], ...others.map((axis) => [axis, named(axis)]), ["none", "nothing: one line"]],
      curveState.by, (value) => { curveState.by = value; again(); }));
  const groups = [...lines(some, curveState.x, curveState.by)], shownGroups = groups.slice(0, CURVES);
  const figures = ["mfu", "days", "cost"].filter(present);
  const across = Math.min(figures.length, Math.max(1, Math.floor((width + 16) / 316))), each = (width - 16 * (across - 1)) / across;
  const panels = figures.map((figure) => curvePanel(shownGroups, figure, each));
  const signs = shownGroups.map(([name], i) => ({ text: name, sign: tiny(svg("path", { d: "M0 7H30", class: `c${i} stroke plainline`, "stroke-dasharray": DASHES[i] }), shape(SHAPES[i], 15, 7, 4, i)) }));
  const cut = groups.length > CURVES ? [html("p", { class: "caption" }, `${CURVES} of ${groups.length} lines are drawn; filter, or choose what makes a line`)] : [];
  return [controls, html("div", { class: "panels" }, ...panels), legend(signs), ...cut];
}

function curvePanel(groups, figure, width) {
  const x = { name: named(curveState.x), show: (value) => value.toLocaleString("en", { maximumFractionDigits: 2 }) };
  const all = groups.flatMap(([, several]) => several).filter((point) => point[figure] != null);
  if (!all.length) return html("p", { class: "caption" }, "nothing is left by the filter");
  const ticks = inOrder(distinct(all.map((point) => axisValue(point, curveState.x)))), less = FIGURES[figure].less;
  const { figure: picture, across, up } = frame(width, 250, {
    xs: ticks, ys: all.map((point) => point[figure]), x, y: { name: FIGURES[figure].name, show: (value) => said(figure, value) },
    xTicks: ticks, xlog: ticks[0] > 0, ylog: less, zero: !less });
  const marks = [];
  groups.forEach(([name, several], i) => {
    const best = ticks.map((tick) => several.filter((point) => axisValue(point, curveState.x) === tick && point[figure] != null))
      .filter((some) => some.length).map((some) => bestOf(some, figure));
    const path = best.map((point, j) => `${j ? "L" : "M"}${across(axisValue(point, curveState.x))} ${up(point[figure])}`).join("");
    picture.append(svg("path", { d: path, class: `c${i} stroke plainline`, "stroke-dasharray": DASHES[i] }));
    for (const point of best) {
      const [px, py] = [across(axisValue(point, curveState.x)), up(point[figure])], element = shape(SHAPES[i], px, py, 4, i);
      picture.append(element);
      marks.push({ x: px, y: py, element, lines: told(point) });
    }
  });
  listening(picture, marks);
  return html("div", {}, picture);
}

const CROSSED = DATA.axes.filter((axis) => distinct(points.map((point) => axisValue(point, axis))).length > 1);
const heatState = { row: CROSSED[0], column: CROSSED.find((axis) => axis === "gpus" && axis !== CROSSED[0]) ?? CROSSED[1], figure: "mfu" };
function drawHeat(some, width, again) {
  if (!STUDY || CROSSED.length < 2 || !present("seconds")) return null;
  const options = CROSSED.map((axis) => [axis, named(axis)]);
  const figures = ["mfu", "days", "cost", "seconds", "gib", "speedup"].filter(present).map((figure) => [figure, FIGURES[figure].name]);
  const set = (key) => (value) => { heatState[key] = value; again(); };
  const controls = html("div", { class: "controls" }, choice("rows", options, heatState.row, set("row")),
    choice("columns", options, heatState.column, set("column")), choice("cells", figures, heatState.figure, set("figure")));
  const { row, column, figure } = heatState;
  if (row === column) return [controls, html("p", { class: "caption" }, "choose two different axes")];
  const [ys, xs] = [row, column].map((axis) => inOrder(distinct(some.map((point) => axisValue(point, axis)))));
  const left = Math.min(Math.max(...ys.map((value) => label(value).length), 4) * 6.8 + 12, width * 0.36);
  const cell = Math.min((width - left - 4) / xs.length, 150), high = 30, height = 26 + ys.length * high + 26;
  const picture = canvas(width, height, `${FIGURES[figure].name} by ${named(row)} and ${named(column)}`);
  const cells = [];
  ys.forEach((y, i) => xs.forEach((x, j) => {
    const here = some.filter((point) => axisValue(point, row) === y && axisValue(point, column) === x);
    const priced = here.filter((point) => point[figure] != null);
    cells.push({ i, j, here, best: priced.length ? bestOf(priced, figure) : null });
  }));
  const values = cells.filter(({ best }) => best).map(({ best }) => best[figure]);
  const log = values.length > 0 && Math.min(...values) > 0 && Math.max(...values) > 20 * Math.min(...values);
  const share = values.length ? scale(values, 0, 1, { log }) : () => 0;
  const marks = [];
  for (const { i, j, here, best } of cells) {
    const box = { x: left + j * cell, y: 24 + i * high, w: cell, h: high };
    const bright = best ? heat(FIGURES[figure].less ? 1 - share(best[figure]) : share(best[figure])) : null;
    const element = svg("rect", { x: box.x, y: box.y, width: box.w, height: box.h, class: "gap", fill: bright?.colour ?? "none" });
    picture.append(element);
    if (!best) picture.append(svg("path", { d: `M${box.x + 2} ${box.y + high - 2}L${box.x + cell - 2} ${box.y + 2}`, class: "grid" }));
    if (best && cell > 44) picture.append(svg("text", { x: box.x + cell / 2, y: box.y + 20, "text-anchor": "middle", class: bright.light ? "onlight" : "ondark" }, said(figure, best[figure])));
    marks.push({ ...box, element, lines: best ? told(best) : here.length ? told(here[0]).concat(here[0].status) : ["not in the study"] });
  }
  ys.forEach((y, i) => picture.append(svg("text", { x: left - 6, y: 24 + i * high + 20, "text-anchor": "end" }, clipped(label(y), left))));
  xs.forEach((x, j) => { if (cell > 26 || j % 3 === 0) picture.append(svg("text", { x: left + (j + 0.5) * cell, y: 18, "text-anchor": "middle" }, clipped(label(x), cell))); });
  picture.append(svg("text", { x: 4, y: height - 6, class: "soft" }, `${named(row)} down, ${named(column)} across; brighter is better`));
  listening(picture, marks, 2);
  return [controls, picture];
}

// Of one job: what no other point beats in one of time, cost, memory and GPUs without being worse in another.
const OBJECTIVES = ["days", "cost", "gib", "gpus"];
function frontOf(several, objectives) {
  const key = (point) => objectives.map((name) => point[name] ?? Infinity);
  const sorted = several.map((point) => [point, key(point)]).sort(([, a], [, b]) => a.map((value, i) => value - b[i] || 0).find((gap) => gap) ?? 0);
  const front = [];
  for (const [point, mine] of sorted) {
    if (!front.some(([, other]) => other.every((value, i) => value <= mine[i]) && other.some((value, i) => value < mine[i]))) front.push([point, mine]);
  }
  return new Set(front.map(([point]) => point));
}

const JOBS = distinct(points.filter((point) => point.seconds != null).map((point) => point.job));
const FRONT = new Set(JOBS.flatMap((job) => [...frontOf(points.filter((point) => point.job === job && point.seconds != null), OBJECTIVES)]));
const PAIRS = ["days", "cost", "gib", "gpus", "seconds"].filter(present);
const paretoState = { job: JOBS[0], x: PAIRS.includes("cost") && STUDY ? "cost" : "gib", y: "days" };
function drawPareto(some, width, again) {
  const mine = some.filter((point) => point.seconds != null && point.job === paretoState.job);
  const { x, y } = paretoState, set = (key) => (value) => { paretoState[key] = value; again(); };
  if (points.filter((point) => point.seconds != null).length < 2) return null;
  const options = PAIRS.map((name) => [name, FIGURES[name].name]);
  const controls = html("div", { class: "controls" }, choice("across", options, x, set("x")), choice("up", options, y, set("y")));
  if (JOBS.length > 1) controls.append(choice("of", JOBS.map((job) => [job, job]), paretoState.job, set("job")));
  const drawn = mine.filter((point) => point[x] != null && point[y] != null);
  if (!drawn.length) return [controls, html("p", { class: "caption" }, "nothing is left by the filter")];
  const { figure, across, up } = frame(width, 300, { xs: drawn.map((point) => point[x]), ys: drawn.map((point) => point[y]),
    x: { name: FIGURES[x].name, show: (value) => said(x, value) }, y: { name: FIGURES[y].name, show: (value) => said(y, value) }, xlog: true, ylog: true });
  const edge = [...frontOf(drawn, [x, y])].sort((a, b) => a[x] - b[x] || b[y] - a[y]);
  const steps = edge.map((point, i) => i ? `H${across(point[x])}V${up(point[y])}` : `M${across(point[x])} ${up(point[y])}`).join("");
  figure.append(svg("path", { d: steps, class: "c1 stroke plainline" }));
  const rest = drawn.filter((point) => !FRONT.has(point)).map((point) => `M${across(point[x]).toFixed(1)} ${up(point[y]).toFixed(1)}h0`);
  figure.append(svg("path", { d: rest.join(""), class: "dots" })); // one path of dots: outlines of thousands print as megabytes
  const marks = drawn.map((point) => {
    const mark = { x: across(point[x]), y: up(point[y]), get lines() { return told(point); } };
    if (!FRONT.has(point)) return mark;
    mark.element = shape("diamond", mark.x, mark.y, 5, edge.includes(point) ? 1 : 0);
    figure.append(mark.element);
    return mark;
  });
  listening(figure, marks);
  const sign = (kind, colour, hollow) => tiny(shape(kind, 15, 7, 4.5, colour, hollow));
  return [controls, figure, legend([{ sign: sign("diamond", 1), text: "front of the two shown" },
    { sign: sign("diamond", 0), text: "front of time, cost, memory and GPUs together" }, { sign: tiny(svg("path", { d: "M15 7h0", class: "dots" })), text: "another plan is better" }])];
}
