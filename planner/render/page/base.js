// What all figures use: elements, numbers in words, scales, axes, marks, and what is said where the pointer is.
const DATA = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const SHAPES = ["disc", "square", "triangle", "diamond", "cross", "wedge", "bar", "plus"];
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "5 2", "1 4", "12 4", "3 3"];

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

const three = (value) => Number(value.toPrecision(3)).toLocaleString("en", { maximumSignificantDigits: 3 });
const short = (value) => {
  const size = Math.abs(value);
  for (const [scale, unit] of [[1e12, " T"], [1e9, " G"], [1e6, " M"], [1e4, " k"]]) {
    if (size >= scale) return three(size === scale / 10 ? value : value / (scale === 1e4 ? 1e3 : scale)) + unit;
  }
  return three(value);
};
const seconds = (value) => value >= 1 ? `${three(value)} s` : value >= 1e-3 ? `${three(value * 1e3)} ms` : `${three(value * 1e6)} µs`;

// Name, how a value is written, whether less is better, whether an axis begins at zero.
const FIGURES = {
  seconds: { name: "seconds per iteration", show: seconds, less: true },
  mfu: { name: "MFU", show: (value) => `${(100 * value).toFixed(1)} %`, less: false },
  days: { name: "days", show: three, less: true },
  cost: { name: "cost, $", show: (value) => `$${short(value)}`, less: true },
  gib: { name: "memory, GiB", show: (value) => value.toFixed(1), less: true },
  gpus: { name: "GPUs", show: (value) => value.toLocaleString("en"), less: true },
  rate: { name: "tokens per second", show: short, less: false },
  speedup: { name: "speedup", show: (value) => `${value.toFixed(2)}x`, less: false },
};
const said = (figure, value) => value == null ? "" : FIGURES[figure].show(value);

const points = DATA.points;
const distinct = (values) => [...new Set(values)];
const axisValue = (point, axis) => axis === "gpus" && point.axes.gpus == null ? point.gpus : point.axes[axis];
const label = (value) => value == null ? "–" : typeof value === "number" ? (value >= 1e9 ? short(value) : value.toLocaleString("en")) : String(value);
const named = (axis) => axis.replace(/^cluster\./, "").replaceAll("_", " ").replaceAll(".", " ");
const where = (point) => DATA.axes.map((axis) => `${named(axis)} ${label(axisValue(point, axis))}`).join(", ");
const present = (figure) => points.some((point) => point[figure] != null);

function inOrder(values) {
  return values.sort((a, b) => typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
}

function told(point) {
  const figures = ["seconds", "mfu", "days", "cost", "gib"].filter((figure) => point[figure] != null);
  return [where(point), point.strategy, figures.map((figure) => `${FIGURES[figure].name} ${said(figure, point[figure])}`).join(", "), point.note].filter(Boolean);
}

// What is said at the pointer; marks are {x, y, lines} or boxes {x, y, w, h, lines}, in the units of the figure.
const tip = document.getElementById("tip");
function tell(lines, event) {
  tip.replaceChildren(...lines.map((line) => html("div", {}, line)));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = Math.min(Math.max(event.clientX + 14, 4), window.innerWidth - box.width - 4);
  const below = event.clientY + 16 + box.height < window.innerHeight;
  tip.style.left = `${Math.max(left, 4)}px`;
  tip.style.top = `${below ? event.clientY + 16 : Math.max(event.clientY - box.height - 12, 4)}px`;
}

function listening(figure, marks, reach = 22) {
  const at = (event) => {
    const box = figure.getBoundingClientRect(), view = figure.viewBox.baseVal;
    const x = (event.clientX - box.left) * view.width / box.width, y = (event.clientY - box.top) * view.height / box.height;
    let best = null, least = reach;
    for (const mark of marks) {
      const dx = Math.max(mark.x - x, 0, x - mark.x - (mark.w ?? 0)), dy = Math.max(mark.y - y, 0, y - mark.y - (mark.h ?? 0));
      const far = Math.hypot(dx, dy) + (mark.w != null && dx + dy > 0 ? reach : 0);
      if (far < least) [best, least] = [mark, far];
    }
    return best;
  };
  const move = (event) => {
    const mark = at(event);
    for (const hot of figure.querySelectorAll(".hot")) hot.classList.remove("hot");
    if (!mark) { tip.hidden = true; return; }
    mark.element?.classList.add("hot");
    tell(mark.lines, event);
  };
  figure.addEventListener("pointermove", move);
  figure.addEventListener("pointerdown", move);
  figure.addEventListener("pointerleave", () => { tip.hidden = true; });
}

// A scale from values to places, with its ticks.
function scale(values, from, to, { log = false, zero = false, every = 62 } = {}) {
  let low = Math.min(...values), high = Math.max(...values);
  if (log && low <= 0) log = false;
  if (zero && !log) low = Math.min(0, low);
  if (low === high) [low, high] = log ? [low / 1.5, high * 1.5] : low ? [low - Math.abs(low) / 2, high + Math.abs(high) / 2] : [-1, 1];
  const turn = log ? Math.log : (value) => value, [a, b] = [turn(low), turn(high)];
  const place = (value) => from + (to - from) * (turn(value) - a) / (b - a);
  const room = Math.max(2, Math.floor(Math.abs(to - from) / every));
  place.ticks = log ? decades(low, high, room) : rounds(low, high, room);
  return place;
}

function rounds(low, high, room) {
  const raw = (high - low) / room, power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1) ticks.push(Number((i * step).toPrecision(12)));
  return ticks;
}

function decades(low, high, room) {
  for (const steps of [[1, 2, 3, 5, 7], [1, 2, 5], [1, 3], [1]]) {
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
      for (const step of steps) {
        const value = Number((step * 10 ** power).toPrecision(3));
        if (value >= low * 0.999 && value <= high * 1.001) ticks.push(value);
      }
    }
    if (ticks.length <= room || steps.length === 1) return ticks.length > 1 ? ticks : rounds(low, high, room);
  }
  return [];
}

// A frame with both axes: returns the figure and its scales.
function frame(width, height, { xs, ys, x, y, xTicks, xlog = false, ylog = false, zero = false, title = "", left = 58 }) {
  const top = 26, bottom = 44, right = 14;
  const figure = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${y.name} over ${x.name}` });
  const across = scale(xs, left + 8, width - right, { log: xlog }), up = scale(ys, height - bottom, top, { log: ylog, zero, every: 38 });
  for (const tick of up.ticks) {
    figure.append(svg("path", { d: `M${left} ${up(tick)}H${width - right}`, class: "grid" }));
    figure.append(svg("text", { x: left - 6, y: up(tick) + 4, "text-anchor": "end", class: "soft" }, y.show(tick)));
  }
  let free = -Infinity;
  for (const tick of xTicks ?? across.ticks) {
    const text = x.show(tick), half = text.length * 3.4, place = across(tick);
    figure.append(svg("path", { d: `M${place} ${height - bottom}v5`, class: "axis" }));
    if (place - half < free || place + half > width + 4) continue;
    figure.append(svg("text", { x: place, y: height - bottom + 18, "text-anchor": "middle", class: "soft" }, text));
    free = place + half + 6;
  }
  figure.append(svg("path", { d: `M${left} ${top}V${height - bottom}H${width - right}`, class: "axis" }));
  figure.append(svg("text", { x: left, y: 14 }, title || y.name));
  figure.append(svg("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle", class: "soft" }, x.name));
  return { figure, across, up };
}

function shape(kind, x, y, r, colour, hollow = false) {
  const paths = {
    disc: `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`,
    square: `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}z`,
    triangle: `M${x} ${y - 1.2 * r}l${1.2 * r} ${2.1 * r}h${-2.4 * r}z`,
    diamond: `M${x} ${y - 1.35 * r}l${1.35 * r} ${1.35 * r}l${-1.35 * r} ${1.35 * r}l${-1.35 * r} ${-1.35 * r}z`,
    wedge: `M${x} ${y + 1.2 * r}l${1.2 * r} ${-2.1 * r}h${-2.4 * r}z`,
    bar: `M${x - 1.3 * r} ${y - 0.55 * r}h${2.6 * r}v${1.1 * r}h${-2.6 * r}z`,
    cross: `M${x - r} ${y - r}l${2 * r} ${2 * r}m0 ${-2 * r}l${-2 * r} ${2 * r}`,
    plus: `M${x - 1.2 * r} ${y}h${2.4 * r}m${-1.2 * r} ${-1.2 * r}v${2.4 * r}`,
  };
  const open = kind === "cross" || kind === "plus";
  const look = open ? "stroke plainline" : hollow ? "stroke hollow" : "stroke fill";
  return svg("path", { d: paths[kind], class: `c${colour} ${look}`, "stroke-width": open ? 2 : 1.4 });
}

function legend(entries) {
  return html("ul", { class: "legend" }, ...entries.map(({ sign, text }) => html("li", {}, sign, text)));
}

function choice(text, options, chosen, change) {
  const select = html("select", { onchange: () => change(select.value) });
  for (const [value, name] of options) select.append(html("option", { value, selected: value === chosen }, name));
  return html("label", {}, text, select);
}

// A section that draws itself again when its width or the filter changes.
const sections = [];
function section(title, caption, draw, { long = false } = {}) {
  const body = html("div");
  const box = html("section", { class: long ? "long" : null }, html("h2", {}, title));
  if (caption) box.append(html("p", { class: "caption" }, caption));
  box.append(body);
  document.getElementById("charts").append(box);
  sections.push({ box, body, draw });
}

function redraw() {
  tip.hidden = true;
  const some = chosenPoints();
  for (const { box, body, draw } of sections) {
    const parts = draw(some, Math.max(body.clientWidth, 260), redraw);
    box.hidden = parts === null;
    if (parts !== null && parts !== body.firstChild) body.replaceChildren(...[parts].flat());
  }
}
