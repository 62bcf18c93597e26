// The kernels of a layer under the machine's roofs: FLOP per byte against FLOP per second, with a table of all of them.
const rooflineState = new WeakMap();
const PASSES = { both: "forward and backward", forward: "forward", backward: "backward" };
const OF_KIND = { product: ["disc", 0, "matrix products"], attention: ["diamond", 1, "attention"] };

function rooflineFigure(kernels, width, again) {
  if (!kernels) return null;
  const state = rooflineState.get(kernels) ?? { layer: 0, pass: "both", part: 0 };
  const set = (key) => (value) => { rooflineState.set(kernels, { ...state, [key]: key === "pass" ? value : Number(value) }); again(); };
  const { machine, layers } = kernels.parts?.[state.part] ?? kernels, layer = layers[state.layer], rows = measuredKernels(layer.kernels, machine, state.pass);
  const controls = html("div", { class: "controls" }, choice("passes", Object.entries(PASSES), state.pass, set("pass")));
  if (kernels.parts?.length > 1) controls.append(choice("machines", kernels.parts.map(({ name, machine: { name: device } }, i) => [String(i), `${name}: ${device}`]), String(state.part), set("part")));
  if (layers.length > 1) controls.append(choice("layers", layers.map(({ kind, count }, i) => [String(i), `${counted(count, "layer")}: ${kind}`]), String(state.layer), set("layer")));
  const drawn = rows.filter((row) => row.flops > 0 && row.bytes > 0), parts = [controls];
  if (drawn.length) parts.push(underRoofs(drawn, machine, width));
  const all = rows.reduce((sum, row) => sum + row.seconds, 0);
  const cells = rows.map((row) => [row.number ? String(row.number) : "", row.name, seconds(row.seconds), percent(row.seconds / all),
    row.flops ? `${three(row.flops / row.seconds / 1e12)} TFLOP/s` : row.bytes ? `${three(row.bytes / row.seconds / 1e9)} GB/s` : "", row.reached ? percent(row.reached) : ""]);
  parts.push(table(["no.", "kernel", ["time", "number"], ["of the layer", "number"], ["reaches", "number"], ["of its roof", "number"]], cells, { name: "kernels of a layer" }));
  parts.push(caption(`One micro-batch on one GPU, ${counted(layer.count, "layer")} like this; traffic between GPUs and waiting for the host left out. Kernels without a number only move bytes; their roof is the memory's ${three(machine.bandwidth / 1e12)} TB/s.`));
  return parts;
}

function measuredKernels(list, machine, pass) {
  const of = ([forward, backward]) => pass === "both" ? forward + backward : pass === "forward" ? forward : backward;
  let number = 0;
  return list.map((kernel) => {
    const [flops, bytes, time] = [of(kernel.flops), of(kernel.bytes), of(kernel.seconds)];
    const roof = kernel.kind === "attention" ? machine.half : machine.peak;
    return { name: kernel.name, kind: kernel.kind, flops, bytes, seconds: time, reached: Math.max(flops / roof, bytes / machine.bandwidth) / time, number: flops > 0 ? (number += 1) : 0 };
  }).filter((row) => row.seconds > 0);
}

function underRoofs(rows, machine, width) {
  const ridge = machine.peak / machine.bandwidth, high = 320, x = { name: "FLOP per byte moved (intensity)", show: short };
  const intensity = (row) => row.flops / row.bytes, rate = (row) => row.flops / row.seconds;
  const xs = [Math.min(ridge, ...rows.map(intensity)) / 4, Math.max(ridge, ...rows.map(intensity)) * 3];
  const ys = [Math.min(machine.bandwidth * xs[0], ...rows.map(rate)), machine.peak * 1.25].map((value) => value / 1e12);
  const told = rows.map((row) => `${row.number} ${row.name}: ${three(intensity(row))} FLOP a byte, ${three(rate(row) / 1e12)} TFLOP/s`).join("; ");
  const { figure, across, up } = frame(width, high, { xs, ys, x, y: { name: "TFLOP/s", show: three }, xlog: true, ylog: true, title: `TFLOP/s of ${machine.name}`, text: told });
  const roof = (peak) => `M${across(xs[0])} ${up(machine.bandwidth * xs[0] / 1e12)}L${across(peak / machine.bandwidth)} ${up(peak / 1e12)}H${across(xs[1])}`;
  const peaks = distinct([machine.peak, machine.half]);
  for (const peak of peaks) figure.append(svg("path", { d: roof(peak), class: "limit" }));
  figure.append(svg("text", { x: across(xs[1]), y: up(machine.peak / 1e12) - 6, "text-anchor": "end" }, `peak in ${machine.precision}: ${three(machine.peak / 1e12)} TFLOP/s`));
  if (peaks.length > 1) figure.append(svg("text", { x: across(xs[1]), y: up(machine.half / 1e12) - 6, "text-anchor": "end" }, `in 16 bits: ${three(machine.half / 1e12)}`));
  const middle = Math.sqrt(Math.max(xs[0], ys[0] * 1e12 / machine.bandwidth) * ridge);
  if (width > 560) figure.append(svg("text", { x: across(middle) + 14, y: up(machine.bandwidth * middle / 1e12) + 8, class: "soft halo" }, `memory: ${three(machine.bandwidth / 1e12)} TB/s`));
  const all = rows.reduce((sum, row) => sum + row.seconds, 0), marks = [];
  for (const row of [...rows].sort((a, b) => b.seconds - a.seconds)) {
    const [kind, colour] = OF_KIND[row.kind], [px, py] = [across(intensity(row)), up(rate(row) / 1e12)], size = 4 + 10 * Math.sqrt(row.seconds / all);
    const element = shape(kind, px, py, size, colour, true);
    figure.append(element);
    marks.push({ x: px, y: py, element, row, size, lines: [`${row.number} ${row.name}`, `${three(intensity(row))} FLOP a byte, ${three(rate(row) / 1e12)} TFLOP/s: ${percent(row.reached)} of its roof`, `${seconds(row.seconds)}, ${percent(row.seconds / all)} of what is drawn`] });
  }
  spread(figure, marks);
  listening(figure, marks);
  const sign = ([kind, colour]) => tiny(shape(kind, 15, 7, 4.5, colour, true));
  const kinds = distinct(rows.map((row) => row.kind));
  return html("div", {}, figure, legend([...kinds.map((kind) => ({ sign: sign(OF_KIND[kind]), text: `${OF_KIND[kind][2]}; larger: more time` })),
    { sign: tiny(svg("path", { d: "M2 12L12 4H28", class: "limit" })), text: `roofs: what memory (${three(machine.bandwidth / 1e12)} TB/s) and arithmetic allow` }]));
}

// Numbers below the marks, each at the first free place, so that none covers another.
function spread(figure, marks) {
  const taken = [];
  for (const mark of [...marks].sort((a, b) => a.x - b.x)) {
    let y = mark.y + mark.size + 14;
    while (taken.some((place) => Math.abs(place.x - mark.x) < 15 && Math.abs(place.y - y) < 13)) y += 13;
    taken.push({ x: mark.x, y });
    if (y > mark.y + mark.size + 15) figure.append(svg("path", { d: `M${mark.x} ${mark.y + mark.size}V${y - 11}`, class: "grid" }));
    figure.append(svg("text", { x: mark.x, y, "text-anchor": "middle" }, String(mark.row.number)));
  }
}
