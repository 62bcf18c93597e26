// What all figures use: elements, numbers in words, what is said where the pointer or the arrow keys are.
const SVG = "http://www.w3.org/2000/svg";

// A table by name that has no names but its own: files, axes and terms may be called __proto__ or constructor.
const bare = (values = {}) => Object.assign(Object.create(null), values);

function html(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value != null) element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) if (value != null) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// A figure with what screen readers say of it: a name, and a description in its desc.
function canvas(width, height, name, text = "") {
  const figure = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": name });
  if (text) figure.append(svg("desc", {}, text));
  return figure;
}

const three = (value) => Number(value.toPrecision(3)).toLocaleString("en", { maximumSignificantDigits: 3 });
const short = (value) => {
  const size = Math.abs(value);
  for (const [scale, unit] of [[1e12, " T"], [1e9, " G"], [1e6, " M"], [1e4, " k"]]) {
    if (size >= scale) return three(size === scale / 10 ? value : value / (scale === 1e4 ? 1e3 : scale)) + unit;
  }
  return three(value);
};
const seconds = (value) => value >= 1 ? `${three(value)} s` : value >= 1e-3 ? `${three(value * 1e3)} ms` : value > 0 ? `${three(value * 1e6)} µs` : "0 s";
// No line ends between a number and its unit.
const unbroken = (text) => text.replace(/(\d) (?=(?:s|ms|µs|%|k|M|GiB|MWh|days|years|hours|h)\b|%)/g, "$1\u00a0").replace("% sure", "%\u00a0sure");
const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)} %`;
const counted = (count, thing) => `${count.toLocaleString("en")} ${thing}${count === 1 ? "" : "s"}`;

// Name, how a value is written, whether less is better.
const FIGURES = bare({
  seconds: { name: "seconds per iteration", show: seconds, less: true },
  mfu: { name: "MFU", show: (value) => percent(value, 1), less: false },
  days: { name: "days", show: three, less: true },
  cost: { name: "cost, $", show: (value) => `$${short(value)}`, less: true },
  gib: { name: "memory, GiB", show: (value) => value.toFixed(1), less: true },
  gpus: { name: "GPUs", show: (value) => value.toLocaleString("en"), less: true },
  rate: { name: "tokens per second", show: short, less: false },
  speedup: { name: "speedup", show: (value) => `${value.toFixed(2)}x`, less: false },
});
const said = (figure, value) => value == null ? "" : FIGURES[figure].show(value);

const distinct = (values) => [...new Set(values)];
const label = (value) => value == null ? "–" : typeof value === "number" ? (value >= 1e9 ? short(value) : value.toLocaleString("en")) : String(value);
const named = (axis) => axis === "gpus" ? "GPUs" : axis.replace(/^cluster\./, "").replaceAll("_", " ").replaceAll(".", " ");
const axisValue = (point, axis) => axis === "gpus" && point.axes.gpus == null ? point.gpus : point.axes[axis];
const where = (point) => Object.keys(point.axes).map((axis) => `${named(axis)} ${label(axisValue(point, axis))}`).join(", ");
const clipped = (text, room) => {
  const most = Math.max(Math.floor(room / 6.8) - 1, 3);
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
};

function inOrder(values) {
  return values.sort((a, b) => typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
}

function told(point) {
  const figures = ["seconds", "mfu", "days", "cost", "gib"].filter((figure) => point[figure] != null);
  return [where(point), point.strategy, figures.map((figure) => `${FIGURES[figure].name} ${said(figure, point[figure])}`).join(", "), point.note].filter(Boolean);
}

// What is said at a place on the screen; a screen reader says it too.
let tip = null;
function tell(lines, { clientX, clientY }) {
  if (!tip) {
    tip = html("div", { id: "tip", role: "status" });
    (document.querySelector("main") ?? document.body).append(tip);
  }
  tip.replaceChildren(...lines.map((line) => html("div", {}, line)));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = Math.min(Math.max(clientX + 14, 4), window.innerWidth - box.width - 4);
  const below = clientY + 16 + box.height < window.innerHeight;
  tip.style.left = `${Math.max(left, 4)}px`;
  tip.style.top = `${below ? clientY + 16 : Math.max(clientY - box.height - 12, 4)}px`;
}
function hush() { if (tip) tip.hidden = true; }

// Marks are {x, y, lines} or boxes {x, y, w, h, lines}, in the units of the figure; arrow keys go from one to the next.
// Where there are thousands, lines is a getter: words take longer than drawing.
function listening(figure, marks, reach = 22) {
  const far = (mark, x, y) => {
    const dx = Math.max(mark.x - x, 0, x - mark.x - (mark.w ?? 0)), dy = Math.max(mark.y - y, 0, y - mark.y - (mark.h ?? 0));
    return Math.hypot(dx, dy) + (mark.w != null && dx + dy > 0 ? reach : 0);
  };
  const nearest = (x, y) => {
    let best = null, least = reach;
    for (const mark of marks) {
      const away = far(mark, x, y);
      if (away < least) [best, least] = [mark, away];
    }
    return best;
  };
  heard(figure, nearest, marks, (mark) => {
    for (const hot of figure.querySelectorAll(".hot")) hot.classList.remove("hot");
    mark?.element?.classList.add("hot");
  });
}

// The same for whatever is found at a place: `find` takes x and y, `show` what was found, or null.
function heard(figure, find, marks, show) {
  let current = -1;
  const say = (mark, event) => {
    show(mark);
    if (mark) tell(mark.lines, event);
    else hush();
  };
  const move = (event) => {
    const box = figure.getBoundingClientRect(), view = figure.viewBox.baseVal;
    say(find((event.clientX - box.left) * view.width / box.width, (event.clientY - box.top) * view.height / box.height), event);
  };
  const leave = () => { show(null); hush(); };
  const key = (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") leave();
    if (!step || !marks.length) return;
    event.preventDefault();
    current = (current + step + marks.length) % marks.length;
    const box = figure.getBoundingClientRect(), scale = box.width / figure.viewBox.baseVal.width, mark = marks[current];
    say(mark, { clientX: box.left + (mark.x + (mark.w ?? 0) / 2) * scale, clientY: box.top + (mark.y + (mark.h ?? 0)) * scale });
  };
  figure.setAttribute("tabindex", 0);
  for (const [name, act] of [["pointermove", move], ["pointerdown", move], ["pointerleave", leave], ["blur", leave], ["keydown", key]]) figure.addEventListener(name, act);
}

function legend(entries) {
  return html("ul", { class: "legend" }, ...entries.map(({ sign, text }) => html("li", {}, sign, text)));
}

const caption = (text) => html("p", { class: "caption" }, text);

function choice(text, options, chosen, change) {
  const select = html("select", { onchange: () => change(select.value) });
  for (const [value, name] of options) select.append(html("option", { value, selected: value === chosen }, name));
  return html("label", {}, text, select);
}

// A table: heads are texts, or [text, "number"] and [text, "wide"] for what is in the column; cells are texts or elements.
function table(heads, rows, { name = "", ...attributes } = {}) {
  const kind = (i) => Array.isArray(heads[i]) ? heads[i][1] : null, word = (i) => kind(i) ? heads[i][0] : heads[i];
  return stacking(name, attributes, heads.map((_, i) => html("th", { class: kind(i) }, word(i))),
    rows.map((row) => row.map((cell, i) => html("td", { class: kind(i), "data-head": word(i) }, cell ?? ""))), heads.length > 3);
}

// Where it is too narrow for its columns each row stands by itself, every cell behind its head; the roles keep it a table.
function stacking(name, attributes, heads, rows, stacks = true) {
  const row = (cells) => html("tr", { role: "row" }, ...cells);
  for (const head of heads) for (const [key, value] of [["scope", "col"], ["role", "columnheader"]]) head.setAttribute(key, value);
  for (const cell of rows.flat()) cell.setAttribute("role", "cell");
  return html("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": name || null },
    html("table", { ...attributes, class: [attributes.class, stacks && "stacks"].filter(Boolean).join(" ") || null, role: "table" },
      html("thead", { role: "rowgroup" }, row(heads)), html("tbody", { role: "rowgroup" }, ...rows.map(row))));
}

// The numbers behind a figure, for those who cannot see it or want to copy them.
function behind(name, heads, rows) {
  return html("details", { class: "behind" }, html("summary", {}, `${name} as a table`), table(heads, rows, { name }));
}

// Draws into an element, again whenever its width changes; `draw` takes a width and gives elements, or null.
function mount(host, draw) {
  let last = 0;
  const again = () => {
    const parts = draw(Math.max(host.clientWidth, 260), again);
    hush();
    host.replaceChildren(...(parts === null ? [] : [parts].flat()));
  };
  new ResizeObserver(() => { if (Math.abs(host.clientWidth - last) > 1) { last = host.clientWidth; again(); } }).observe(host);
  return again;
}
