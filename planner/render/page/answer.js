// The page of any other answer: its leading figures, bars and tables, as notebooks have them.
const DATA = JSON.parse(document.getElementById("data").textContent);
const HEADS = { steps: "What changes on the way from A to B", curves: "What each job could have had", terms: "Term by term", levers: "Levers", rows: "Every figure" };
const SHOWN = 40, BARS = 60;

const WRITTEN = bare({
  seconds: (value) => value >= 172800 ? `${three(value / 86400)} days` : value >= 7200 ? `${three(value / 3600)} h` : seconds(value),
  bytes: (value) => `${(value / 2 ** 30).toFixed(1)} GiB`, dollars: (value) => `$${short(value)}`,
  rate: short, share: (value) => percent(value, 1), change: (value) => `${value > 0 ? "+" : ""}${percent(value, 1)}`, number: (value) => Number.isInteger(value) ? value.toLocaleString("en") : three(value),
});
const signed = (kind, value) => value < 0 ? `−${WRITTEN[kind === "change" ? "share" : kind](-value)}` : WRITTEN[kind](value);
const written = (kind, value) => value == null ? "" : kind === "text" ? wordOf(typeof value === "boolean" ? (value ? "yes" : "no") : String(value).replaceAll(" -> ", " → ")) : signed(kind, value);

function drawnSection(title, draw) {
  const body = html("div"), id = `s${document.querySelectorAll("#charts > section").length}`;
  document.getElementById("charts").append(html("section", { class: "long", "aria-labelledby": id }, html("h2", { id }, title), body));
  mount(body, draw)();
}

// Bars one below the other: those of a label side by side, or on top of each other where they are parts of one.
function barsFigure({ title, unit, labels, series, stacked, limit }, width) {
  const names = Object.keys(series), drawn = labels.slice(0, BARS), each = stacked ? 18 : Math.max(24 / names.length, 11), high = (stacked ? 18 : each * names.length) + 26;
  const total = (i) => names.reduce((sum, name) => sum + series[name][i], 0), all = drawn.flatMap((_, i) => stacked ? [total(i)] : names.map((name) => series[name][i]));
  const from = Math.min(0, ...all), to = Math.max(0, limit ?? 0, ...all), room = width - 130, place = (value) => 4 + room * (value - from) / ((to - from) || 1);
  const figure = canvas(width, drawn.length * high + 8, title, drawn.map((label, i) => `${label}: ${names.map((name) => `${three(series[name][i])} ${unit}`).join(", ")}`).join("; "));
  const marks = [];
  drawn.forEach((label, i) => {
    const top = i * high + 18;
    figure.append(svg("text", { x: 4, y: top - 5 }, clipped(wordOf(label), width)));
    let x = 0;
    names.forEach((name, n) => {
      const value = series[name][i], y = stacked ? top : top + n * each, [a, b] = stacked ? [place(x), place(x += value)] : [place(Math.min(value, 0)), place(Math.max(value, 0))];
      const box = { x: a, y, width: Math.max(b - a, 0.5), height: each - 2 }, lines = hatch(n ? 1 + (n - 1) % 6 : 0, box.x, box.y, box.width, box.height);
      const element = svg("g", {}, svg("rect", { ...box, class: `gap c${n % 8} fill` }), ...(lines ? [svg("path", { d: lines, class: "texture" })] : []));
      figure.append(element);
      if (!stacked) figure.append(svg("text", { x: Math.max(b, place(0)) + 6, y: y + each / 2 + 2, class: "small halo" }, `${three(value)} ${unit}`));
      marks.push({ x: a, y, w: b - a, h: each, element, lines: [wordOf(label), `${names.length > 1 ? `${name}: ` : ""}${three(value)} ${unit}`] });
    });
  });
  if (limit != null) figure.append(svg("path", { d: `M${place(limit)} 0V${drawn.length * high + 8}`, class: "limit" }));
  listening(figure, marks, 3);
  const sign = (n) => { const lines = hatch(n ? 1 + (n - 1) % 6 : 0, 6, 1, 20, 12); return tiny(svg("rect", { x: 6, y: 1, width: 20, height: 12, class: `c${n % 8} fill` }), ...(lines ? [svg("path", { d: lines, class: "texture" })] : [])); };
  const entries = [...(names.length > 1 ? names.map((name, n) => ({ sign: sign(n), text: name })) : []), ...(limit != null ? [{ sign: tiny(svg("path", { d: "M15 0V14", class: "limit" })), text: "limit" }] : [])];
  return [...(entries.length ? [legend(entries)] : []), figure, ...(drawn.length < labels.length ? [caption(`the first ${BARS} of ${labels.length.toLocaleString("en")}`)] : [])];
}

function tableSection({ columns, rows, name, all }) {
  let shown = SHOWN;
  return (_width, again) => {
    const long = (i) => rows.some((row) => typeof row[i] === "string" && row[i].length > 28);
    const heads = columns.map(([head, kind], i) => kind !== "text" ? [head, "number"] : long(i) ? [head, "wide"] : [head, "name"]);
    const parts = [table(heads, rows.slice(0, shown).map((row) => row.map((value, i) => written(columns[i][1], value))), { name })];
    if (rows.length > shown) parts.push(html("p", { class: "more" }, html("button", { type: "button", onclick: () => { shown *= 5; again(); } }, "show more rows"), ` ${shown} of ${all.toLocaleString("en")}`));
    return parts;
  };
}

document.getElementById("cards").append(cards(DATA.facts.map(([name, value]) => ({ name, value, detail: "", meaning: "" }))));
for (const figure of DATA.figures) drawnSection(`${figure.title[0].toUpperCase()}${figure.title.slice(1)}`, (width) => barsFigure(figure, width));
if (DATA.runs) drawnSection("Predicted against measured", (width) => [caption("A mark for every run with its seconds of an iteration; a ratio of 1 is right."), measuredRuns(DATA.runs, [], width)].flat());
for (const one of DATA.tables) drawnSection(Object.hasOwn(HEADS, one.name) ? HEADS[one.name] : `${one.name[0].toUpperCase()}${one.name.slice(1)}`, tableSection(one));
