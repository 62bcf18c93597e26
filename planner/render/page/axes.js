// Scales, frames, marks and the looks of what is drawn.
const SHAPES = ["disc", "square", "triangle", "diamond", "cross", "wedge", "bar", "plus"];
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "5 2", "1 4", "12 4", "3 3"];
const LOOKS = bare({ // colour and texture of every term and part, always the same
  compute: [0, 0], recompute: [0, 1], tp: [1, 0], cp: [1, 3], ep: [5, 0], pp: [3, 0], bubble: [6, 1], dp: [2, 0], optimizer: [7, 0],
  host: [6, 0], straggler: [6, 5], offload: [4, 1],
  weights: [0, 0], gradients: [1, 1], activations: [2, 0], logits: [5, 3], slack: [6, 1], reserved: [6, 0],
});
const WORDS = bare({ // what the terms and parts are
  compute: "computing", recompute: "computing again what was not kept", tp: "tensor-parallel traffic", cp: "context-parallel traffic",
  ep: "experts' traffic", pp: "sending between stages", bubble: "stages waiting for each other (bubble)", dp: "adding up gradients",
  optimizer: "updating weights", host: "waiting for the host", straggler: "waiting for slower GPUs", offload: "moving to and from the host",
  slack: "slack: left for the allocator", reserved: "reserved by drivers and libraries", logits: "logits of the output",
  optimizer_states: "optimizer states",
});
const wordOf = (name, part = false) => WORDS[part && name === "optimizer" ? "optimizer_states" : name] ?? name;
const lookOf = (name) => LOOKS[name] ?? [4, 6];

// Lines across a box, cut at its edges: patterns of SVG would print as pictures.
const EVERY = 6;
function hatch(texture, x, y, w, h) {
  if (!texture || w < 3 || h < 3) return "";
  let path = "";
  const line = (x1, y1, x2, y2) => { path += `M${x1.toFixed(1)} ${y1.toFixed(1)}L${x2.toFixed(1)} ${y2.toFixed(1)}`; };
  const first = (from) => Math.ceil(from / EVERY) * EVERY;
  const up = () => { for (let c = first(x + y); c < x + y + w + h; c += EVERY) { const a = Math.max(x, c - y - h), b = Math.min(x + w, c - y); line(a, c - a, b, c - b); } };
  const down = () => { for (let c = first(x - y - h); c < x + w - y; c += EVERY) { const a = Math.max(x, c + y), b = Math.min(x + w, c + y + h); line(a, a - c, b, b - c); } };
  const upright = () => { for (let c = first(x + 1); c < x + w; c += EVERY) line(c, y, c, y + h); };
  const flat = () => { for (let c = first(y + 1); c < y + h; c += EVERY) line(x, c, x + w, c); };
  for (const draw of [[], [up], [upright], [down], [flat], [up, down], [flat, upright]][texture]) draw();
  return path;
}

function block(name, { x, y, width, height }) {
  const [colour, texture] = lookOf(name), lines = hatch(texture, x, y, width, height);
  const group = svg("g", {}, svg("rect", { x, y, width, height, class: `gap c${colour} fill` }));
  if (lines) group.append(svg("path", { d: lines, class: "texture" }));
  return group;
}

const tiny = (...parts) => svg("svg", { viewBox: "0 0 30 14", "aria-hidden": "true" }, ...parts);
const signOf = (name) => tiny(block(name, { x: 6, y: 1, width: 20, height: 12 }));
const signs = (names, part = false) => legend(names.map((name) => ({ sign: signOf(name), text: wordOf(name, part) })));

// Colours from dark to light that colour-blind readers order alike (cividis).
const RAMP = [[0, 34, 78], [53, 69, 108], [102, 105, 112], [148, 142, 119], [200, 184, 102], [254, 232, 56]];
function heat(share) {
  const place = Math.min(Math.max(share, 0), 1) * (RAMP.length - 1), i = Math.min(Math.floor(place), RAMP.length - 2), t = place - i;
  const mixed = RAMP[i].map((value, j) => Math.round(value + (RAMP[i + 1][j] - value) * t));
  return { colour: `rgb(${mixed.join(",")})`, light: mixed[0] * 0.3 + mixed[1] * 0.6 + mixed[2] * 0.1 > 120 };
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

// Words of ticks, with more digits where they would say the same.
function apart(ticks, show) {
  const words = ticks.map(show);
  return distinct(words).length === words.length ? words : ticks.map((tick) => tick.toLocaleString("en", { maximumSignificantDigits: 6 }));
}

// A frame with both axes: returns the figure and its scales.
function frame(width, height, { xs, ys, x, y, xTicks, xlog = false, ylog = false, zero = false, title = "", left = 58, text = "" }) {
  const top = 26, bottom = 44, right = 14;
  const figure = canvas(width, height, `${y.name} over ${x.name}`, text);
  const across = scale(xs, left + 8, width - right, { log: xlog }), up = scale(ys, height - bottom, top, { log: ylog, zero, every: 38 });
  const upward = apart(up.ticks, y.show);
  up.ticks.forEach((tick, i) => {
    figure.append(svg("path", { d: `M${left} ${up(tick)}H${width - right}`, class: "grid" }));
    figure.append(svg("text", { x: left - 6, y: up(tick) + 4, "text-anchor": "end", class: "soft" }, upward[i]));
  });
  let free = -Infinity;
  const ticks = xTicks ?? across.ticks, below = apart(ticks, x.show);
  for (const [i, tick] of ticks.entries()) {
    const text = below[i], half = text.length * 3.4, place = across(tick);
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

