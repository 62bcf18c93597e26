// Stacks of terms and memory by stage.
const stackState = { share: "seconds" };
const STACKS = 24;
function timeBars(plans, width, again, { name = where, of = "in the order of the table" } = {}) {
  const stacked = plans.filter((plan) => Object.keys(plan.terms).length && plan.seconds != null), drawn = stacked.slice(0, STACKS);
  if (!drawn.length) return null;
  const controls = html("div", { class: "controls" }, choice("bars are", [["seconds", "seconds"], ["share", "shares of the iteration"]],
    stackState.share, (value) => { stackState.share = value; again(); }));
  const names = distinct(drawn.flatMap((plan) => Object.keys(plan.terms))), most = Math.max(...drawn.map((plan) => plan.seconds), 0), high = 22;
  const text = Object.entries(drawn[0].terms).map(([term, value]) => `${wordOf(term)} ${seconds(value)}`).join(", ");
  const picture = canvas(width, drawn.length * (high + 20) + 14, "where the time of an iteration goes", `${name(drawn[0])}: ${text}`);
  const marks = [];
  drawn.forEach((plan, i) => {
    const total = Object.values(plan.terms).reduce((sum, value) => sum + value, 0), full = (width - 8) * (stackState.share === "share" ? 1 : plan.seconds / most);
    const y = i * (high + 20) + 26;
    picture.append(svg("text", { x: 4, y: y - 4 }, clipped(`${seconds(plan.seconds)}  ${name(plan)}`, width)));
    let x = 4;
    for (const term of names) {
      const value = plan.terms[term] ?? 0, wide = full * value / total;
      if (!value) continue;
      const element = block(term, { x, y, width: Math.max(wide, 0.3), height: high });
      picture.append(element);
      marks.push({ x, y, w: wide, h: high, element, lines: [`${wordOf(term)}: ${seconds(value)}, ${percent(value / total, 1)}`, ...told(plan)] });
      x += wide;
    }
  });
  listening(picture, marks, 3);
  const cut = stacked.length > STACKS ? [caption(`the first ${STACKS} of ${stacked.length}, ${of}`)] : [];
  const rows = names.map((term) => [wordOf(term), ...drawn.slice(0, 6).map((plan) => seconds(plan.terms[term] ?? 0))]);
  const heads = ["term", ...drawn.slice(0, 6).map((plan) => [clipped(name(plan), 160), "number"])];
  return [controls, signs(names), picture, ...cut, behind("Terms", heads, rows)];
}

function memoryBars(stages, width) {
  if (!stages?.length) return null;
  const names = Object.keys(stages[0].parts).filter((name) => stages.some((stage) => stage.parts[name] > 0.005));
  const sum = (stage) => Object.values(stage.parts).reduce((total, value) => total + value, 0);
  const high = 260, base = high - 34, left = 46, most = Math.max(...stages.map((stage) => Math.max(stage.limit, sum(stage)))) * 1.04;
  const up = scale([0, most], base, 18, { zero: true, every: 38 }), wide = Math.min((width - left - 8) / stages.length, 220);
  const fullest = stages.reduce((worst, stage) => sum(stage) / stage.limit > sum(worst) / worst.limit ? stage : worst);
  const picture = canvas(width, high, "memory by stage", `fullest: stage ${fullest.stage} with ${sum(fullest).toFixed(1)} of ${fullest.limit.toFixed(1)} GiB`);
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
      marks.push({ x, y, w: wide - 6, h: tall, element, lines: [`stage ${stage.stage}, ${wordOf(name, true)}: ${stage.parts[name].toFixed(1)} GiB`, `all ${sum(stage).toFixed(1)} of ${stage.limit.toFixed(1)} GiB`] });
    }
    picture.append(svg("path", { d: `M${x - 3} ${up(stage.limit)}h${wide}`, class: "limit" }));
    const every = Math.ceil(26 / wide);
    if (i % every === 0) picture.append(svg("text", { x: x + wide / 2 - 3, y: base + 16, "text-anchor": "middle", class: "soft" }, String(stage.stage)));
  });
  picture.append(svg("text", { x: left, y: 12 }, "GiB per GPU; dashed: what is usable"));
  picture.append(svg("text", { x: left, y: high - 4, class: "soft" }, "pipeline stage"));
  listening(picture, marks, 3);
  const rows = stages.map((stage) => [String(stage.stage), ...names.map((name) => stage.parts[name].toFixed(1)), sum(stage).toFixed(1), stage.limit.toFixed(1)]);
  const heads = ["stage", ...names.map((name) => [wordOf(name, true), "number"]), ["all", "number"], ["usable", "number"]];
  return [signs(names, true), picture, behind("Memory in GiB", heads, rows)];
}
