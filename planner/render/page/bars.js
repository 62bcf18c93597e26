// Stacks of terms, memory by stage, the timeline of the pipeline, predicted against measured.
const TEXTURES = ["", "M0 6L6 0", "M3 0V6", "M0 0L6 6", "M0 3H6", "M0 6L6 0M0 0L6 6", "M0 3H6M3 0V6"];
const LOOKS = { // colour and texture of every term, part and stream, always the same
  compute: [0, 0], recompute: [0, 1], tp: [1, 0], cp: [1, 3], ep: [5, 0], pp: [3, 0], bubble: [6, 1], dp: [2, 0], optimizer: [7, 0],
  host: [6, 0], straggler: [6, 5], offload: [4, 1],
  weights: [0, 0], gradients: [1, 1], activations: [2, 0], logits: [5, 3], slack: [6, 1], reserved: [6, 0],
};
const lookOf = (name) => LOOKS[name] ?? [4, 6];

function textures() {
  const defs = svg("defs");
  for (let colour = 0; colour < 8; colour += 1) {
    TEXTURES.forEach((path, i) => {
      if (!i) return;
      defs.append(svg("pattern", { id: `t${colour}${i}`, width: 6, height: 6, patternUnits: "userSpaceOnUse" },
        svg("rect", { width: 6, height: 6, class: `c${colour} fill` }), svg("path", { d: path, class: "texture" })));
    });
  }
  document.body.append(svg("svg", { width: 0, height: 0, viewBox: "0 0 0 0", "aria-hidden": "true", class: "defs" }, defs));
}

function block(name, attributes) {
  const [colour, texture] = lookOf(name);
  return svg("rect", texture ? { ...attributes, class: "gap", fill: `url(#t${colour}${texture})` } : { ...attributes, class: `gap c${colour} fill` });
}

const signOf = (name) => svg("svg", { viewBox: "0 0 30 14" }, block(name, { x: 6, y: 1, width: 20, height: 12 }));
const signs = (names) => legend(names.map((name) => ({ sign: signOf(name), text: name })));

const stackState = { share: "seconds" };
const STACKS = 24;
function drawStacks(some, width, again) {
  const stacked = some.filter((point) => Object.keys(point.terms).length && point.seconds != null), drawn = sorted(stacked).slice(0, STACKS);
  if (!points.some((point) => Object.keys(point.terms).length)) return null;
  const controls = html("div", { class: "controls" }, choice("bars are", [["seconds", "seconds"], ["share", "shares of the iteration"]],
    stackState.share, (value) => { stackState.share = value; again(); }));
  const names = distinct(drawn.flatMap((point) => Object.keys(point.terms)));
  const most = Math.max(...drawn.map((point) => point.seconds), 0), high = 22, left = 4;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${drawn.length * (high + 20) + 4}`, role: "img", "aria-label": "where the time goes" });
  const marks = [];
  drawn.forEach((point, i) => {
    const total = Object.values(point.terms).reduce((sum, value) => sum + value, 0), full = (width - 8) * (stackState.share === "share" ? 1 : point.seconds / most);
    const top = i * (high + 20) + 16;
    picture.append(svg("text", { x: left, y: top - 4 }, clipped(`${seconds(point.seconds)}  ${where(point)}${STUDY ? "" : `: ${point.strategy}`}`, width)));
    let x = left;
    for (const name of names) {
      const value = point.terms[name] ?? 0, wide = full * value / total;
      if (!value) continue;
      const element = block(name, { x, y: top, width: Math.max(wide, 0.3), height: high });
      picture.append(element);
      marks.push({ x, y: top, w: wide, h: high, element, lines: [`${name}: ${seconds(value)}, ${(100 * value / total).toFixed(1)} %`, ...told(point)] });
      x += wide;
    }
  });
  listening(picture, marks, 3);
  const cut = stacked.length > STACKS ? [html("p", { class: "caption" }, `the first ${STACKS} of ${stacked.length}, in the order of the table`)] : [];
  return [controls, signs(names), picture, ...cut];
}

function drawMemory(_some, width) {
  const stages = DATA.plan?.memory;
  if (!stages?.length) return null;
  const names = Object.keys(stages[0].parts).filter((name) => stages.some((stage) => stage.parts[name] > 0.005));
  const sum = (stage) => Object.values(stage.parts).reduce((total, value) => total + value, 0);
  const high = 260, base = high - 34, left = 46, most = Math.max(...stages.map((stage) => Math.max(stage.limit, sum(stage)))) * 1.04;
  const up = scale([0, most], base, 18, { zero: true, every: 38 }), wide = Math.min((width - left - 8) / stages.length, 160);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${high}`, role: "img", "aria-label": "memory by stage" });
  for (const tick of up.ticks) {
    picture.append(svg("path", { d: `M${left} ${up(tick)}H${width - 4}`, class: "grid" }));
    picture.append(svg("text", { x: left - 6, y: up(tick) + 4, "text-anchor": "end", class: "soft" }, String(tick)));
  }
  const marks = [];
  stages.forEach((stage, i) => {
    let y = base;
    const x = left + i * wide + 3;
    for (const name of names) {
      const tall = base - up(stage.parts[name]);
      y -= tall;
      const element = block(name, { x, y, width: Math.max(wide - 6, 1), height: tall });
      picture.append(element);
      marks.push({ x, y, w: wide - 6, h: tall, element, lines: [`stage ${stage.stage}, ${name}: ${stage.parts[name].toFixed(1)} GiB`, `all ${sum(stage).toFixed(1)} of ${stage.limit.toFixed(1)} GiB`] });
    }
    picture.append(svg("path", { d: `M${x - 3} ${up(stage.limit)}h${wide}`, class: "limit" }));
    const every = Math.ceil(26 / wide);
    if (i % every === 0) picture.append(svg("text", { x: x + wide / 2 - 3, y: base + 16, "text-anchor": "middle", class: "soft" }, String(stage.stage)));
  });
  picture.append(svg("text", { x: left, y: 12 }, "GiB per GPU; dashed: what is usable"));
  picture.append(svg("text", { x: left, y: high - 4, class: "soft" }, "pipeline stage"));
  listening(picture, marks, 3);
  return [signs(names), picture];
}

const ROLES = { F: ["forward", 0, 0], B: ["backward", 1, 0], W: ["weight gradients", 5, 0], comm: ["communication", 2, 1], once: ["once an iteration", 7, 3] };
function roleOf(stream, name) {
  if (!/^[FBW]\d/.test(name)) return "once";
  return stream === "compute" ? name[0] : "comm";
}

function drawTimeline(_some, width) {
  const timeline = DATA.plan?.timeline;
  if (!timeline) return DATA.plan ? html("p", { class: "caption" }, DATA.plan.remark) : null;
  const { events, streams, names, span } = timeline, stages = Math.max(...events.map((event) => event[0])) + 1;
  const left = 34, high = Math.max(Math.min(260 / stages, 26), 5), height = stages * high + 34;
  const across = scale([0, span], left, width - 8, {}), picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "timeline of the pipeline" });
  const paths = {}, marks = [];
  for (const [stage, stream, start, length, name] of events) {
    const role = roleOf(streams[stream], names[name]), x = across(start / 1e6), wide = Math.max(across((start + length) / 1e6) - x, 0.2);
    const thin = role === "comm" ? 0.45 : 1, y = stage * high + 1 + (1 - thin) * (high - 2), tall = (high - 2) * thin, inked = (wide > 3 ? wide - 0.7 : wide).toFixed(2);
    paths[role] = (paths[role] ?? "") + `M${x.toFixed(2)} ${y.toFixed(1)}h${inked}v${tall.toFixed(1)}h-${inked}z`;
    marks.push({ x, y, w: wide, h: tall, lines: [`${names[name]} on stage ${stage}: ${streams[stream]}`, `${seconds(length / 1e6)} from ${seconds(Math.max(start, 0.001) / 1e6)}`] });
  }
  for (const [role, path] of Object.entries(paths)) {
    const [, colour, texture] = ROLES[role];
    picture.append(svg("path", texture ? { d: path, fill: `url(#t${colour}${texture})` } : { d: path, class: `c${colour} fill` }));
  }
  for (let stage = 0; stage < stages; stage += Math.ceil(12 / high)) picture.append(svg("text", { x: left - 6, y: (stage + 0.5) * high + 4, "text-anchor": "end", class: "soft" }, String(stage)));
  for (const tick of across.ticks) picture.append(svg("text", { x: across(tick), y: height - 16, "text-anchor": "middle", class: "soft" }, String(tick)));
  picture.append(svg("text", { x: (left + width) / 2, y: height - 2, "text-anchor": "middle", class: "soft" }, "seconds; a row for every stage"));
  listening(picture, marks, 2);
  const entries = Object.keys(ROLES).filter((role) => paths[role]).map((role) => {
    const [text, colour, texture] = ROLES[role];
    return { text, sign: svg("svg", { viewBox: "0 0 30 14" }, svg("rect", { x: 6, y: 1, width: 20, height: 12, ...(texture ? { fill: `url(#t${colour}${texture})` } : { class: `c${colour} fill` }) })) };
  });
  return [html("p", { class: "caption" }, DATA.plan.remark), legend(entries), picture];
}

function drawMeasured(_some, width) {
  const { groups, runs } = DATA.measured, near = new Set((DATA.plan?.nearest ?? []).map(([group]) => group));
  const clip = (ratio) => Math.min(Math.max(ratio, 0.25), 2);
  const { figure, across, up } = frame(width, 300, { xs: runs.map(([time]) => time), ys: [0.25, 2], xlog: true, ylog: true,
    x: { name: "measured seconds per iteration", show: (value) => short(value) }, y: { name: "predicted / measured", show: (value) => String(value) } });
  figure.append(svg("path", { d: `M${across(Math.min(...runs.map(([time]) => time)))} ${up(1)}H${width - 14}`, class: "axis" }));
  const paths = ["", ""], marks = [], front = [];
  for (const [time, ratio, split, group] of runs) {
    const x = across(time), y = up(clip(ratio));
    if (near.has(groups[group])) front.push([x, y]);
    paths[split] += split ? `M${x.toFixed(1)} ${(y - 3).toFixed(1)}l2.6 4.5h-5.2z` : `M${x.toFixed(1)} ${y.toFixed(1)}h0`;
    marks.push({ x, y, lines: [groups[group], `${seconds(time)} measured, predicted ${ratio >= 1 ? "+" : "−"}${Math.abs(100 * (ratio - 1)).toFixed(1)} %`, split ? "dev: nothing was fitted to it" : "fit"] });
  }
  figure.append(svg("path", { d: paths[0], class: "c0 stroke", "stroke-width": 4, "stroke-linecap": "round" }));
  figure.append(svg("path", { d: paths[1], class: "c1 stroke plainline", "stroke-width": 1 }));
  for (const [x, y] of front) figure.append(svg("path", { d: `M${x - 5} ${y}a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z`, class: "c2 stroke plainline" }));
  listening(figure, marks, 12);
  const tiny = (...parts) => svg("svg", { viewBox: "0 0 30 14" }, ...parts);
  const entries = [{ text: "fit: constants were fitted to these", sign: tiny(shape("disc", 15, 7, 3, 0)) }, { text: "dev: none were fitted to these", sign: tiny(shape("triangle", 15, 7, 3.5, 1, true)) }];
  if (front.length) entries.push({ text: "sources of the runs nearest to this plan", sign: tiny(shape("disc", 15, 7, 5, 2, true)) });
  return [figure, legend(entries)];
}
