// Where GPUs sit: the nodes of one replica GPU by GPU, and which group talks over which tier of the network.
const [CELL, TALL, GAP] = [40, 30, 14];

function layoutFigure(layout, width) {
  const said = [html("p", {}, layoutWords(layout))];
  if (layout.remark) said.push(caption(layout.remark));
  const drawn = layout.parts ?? (layout.domains?.length ? [layout] : []), staged = layout.degrees.PP > 1;
  if (!drawn.length) return [...said, stageTable(layout.stages)];
  const places = drawn.flatMap((part) => [...(layout.parts ? [html("h3", {}, partWords(part)), html("p", {}, layoutWords(part))] : []), placesFigure(part, width, staged), caption(layoutCut(part))]);
  return [...said, ...(layout.parts ? [stageTable(layout.stages)] : []), signsOfPlaces(drawn, staged), ...places];
}

// "old: 32 GPUs, NVIDIA A100, stages 0 to 3".
const stagesWords = (first, last) => first === last ? `stage ${first}` : `stages ${first} to ${last}`;
const partWords = ({ name, gpus, device, first, stages }) => `${name}: ${counted(gpus, "GPU")} of ${device}, ${stagesWords(first, first + stages.length - 1)}`;

function signsOfPlaces(parts, staged) {
  const sign = (kind) => tiny(svg("rect", { x: 6, y: 1, width: 20, height: 12, class: kind }));
  const entries = [{ sign: sign("c0 fill"), text: `replica 0${staged ? ", even stages" : ""}: ranks are T of tensor, C of context, E of experts; S: stage` }];
  if (staged) entries.push({ sign: sign("c1 fill"), text: "replica 0, odd stages" });
  if (parts.some(({ domains }) => domains.some(({ gpus }) => gpus.some((gpu) => gpu[1] > 0)))) entries.push({ sign: sign("axis"), text: "other replicas, by their number" });
  return legend(entries);
}

function placesFigure(layout, width, staged) {
  const size = layout.domain.gpus, columns = size <= 8 ? size : size % 8 === 0 ? 8 : Math.min(size, 12);
  const cell = Math.min(CELL, (width - 20) / columns), wide = columns * cell + 12, tall = Math.ceil(size / columns) * TALL + 28;
  const across = Math.max(1, Math.floor((width + GAP) / (wide + GAP))), lines = Math.ceil(layout.domains.length / across);
  const figure = canvas(Math.max(width, wide), lines * (tall + GAP), "GPUs of one replica", layoutWords(layout)), marks = [];
  layout.domains.forEach(({ number, gpus }, i) => {
    const left = (i % across) * (wide + GAP), top = Math.floor(i / across) * (tall + GAP), stages = distinct(gpus.filter((gpu) => gpu[1] === 0).map((gpu) => gpu[2]));
    figure.append(svg("rect", { x: left + 0.5, y: top + 0.5, width: wide - 1, height: tall - 1, rx: 5, class: "axis" }));
    const title = `${layout.domain.name} ${number}${staged ? ` · ${stages.length > 1 ? `stages ${stages[0]}–${stages.at(-1)}` : `stage ${stages[0]}`}` : ""}`;
    figure.append(svg("text", { x: left + 6, y: top + 15 }, clipped(title, wide)));
    gpus.forEach((gpu, j) => marks.push(gpuCell(figure, layout, gpu, staged, { x: left + 6 + (j % columns) * cell, y: top + 22 + Math.floor(j / columns) * TALL, cell })));
  });
  listening(figure, marks, 2);
  return figure;
}

// "4 stages of 20 layers", "3 stages of 21 layers and 1 of 20".
function stageWords(stages) {
  const counts = new Map();
  for (const { layers } of stages) counts.set(layers, (counts.get(layers) ?? 0) + 1);
  const told = [...counts].sort(([, a], [, b]) => b - a).map(([layers, count], i) => i ? `${count} of ${layers}` : `${counted(count, "stage")} of ${counted(layers, "layer")}`);
  return told.length > 1 ? `${told.slice(0, -1).join(", ")} and ${told.at(-1)}` : told[0];
}

// Stages on node groups of their own, neighbours alike in one row.
function stageTable(stages) {
  const alike = (a, b) => ["layers", "group", "tp", "dp"].every((key) => a[key] === b[key]), rows = [];
  stages.forEach((stage, i) => { if (i && alike(stage, stages[i - 1])) rows.at(-1).to = i; else rows.push({ ...stage, from: i, to: i }); });
  const cells = rows.map(({ from, to, group, layers, tp, dp }) => [from === to ? String(from) : `${from} to ${to}`, group, String(layers), String(tp), String(dp)]);
  return table(["stage", "node group", ["layers", "number"], ["tensor ranks (TP)", "number"], ["replicas (DP)", "number"]], cells, { name: "stages" });
}

function layoutWords({ gpus, degrees, stages, replica }) {
  const split = Object.entries(degrees).filter(([name, degree]) => degree > 1 && name !== "DP" && name !== "EP").map(([name, degree]) => `${name} ${degree}`).join(" × ");
  const groups = distinct(stages.map((stage) => stage.group)).length;
  const held = stages.length > 1 ? `, ${stageWords(stages)}${groups > 1 ? ` on ${groups} node groups` : ""}` : "";
  if (!replica) return `${counted(gpus, "GPU")}: ${split}, DP ${degrees.DP}${held}.`;
  const each = `${counted(replica.gpus, "GPU")}${split ? ` (${split})` : ""}`;
  const all = replica.count > 1 ? `${counted(replica.count, "replica")} of ${each} make ${(replica.count * replica.gpus).toLocaleString("en")} GPUs` : each;
  return `${all}${held}.${replica.count > 1 ? " Every replica trains on samples of its own." : ""}${degrees.EP > 1 ? ` Every ${degrees.EP.toLocaleString("en")} GPUs of a stage that count E0 to E${degrees.EP - 1} hold all experts of its layers together.` : ""}`;
}

function layoutCut({ domains, domain, replica }) {
  const left = replica.domains - domains.length, others = replica.count - 1;
  const drawn = left > 0 ? `the first ${domains.length} of ${counted(replica.domains, domain.name)} that hold replica 0; the others look like these, with later stages or ranks` : `every ${domain.name} that holds a part of replica 0`;
  return `Drawn: ${drawn}.${others > 1 ? ` The other ${counted(others, "replica")} are laid out alike.` : others ? " The other replica is laid out alike." : ""}`;
}

function gpuCell(figure, { degrees }, [rank, replica, stage, tp, cp, ep], staged, { x, y, cell }) {
  const mine = replica === 0, box = svg("rect", { x: x + 1.5, y: y + 1.5, width: cell - 3, height: TALL - 3, rx: 3, class: mine ? `c${stage % 2} fill` : "axis" });
  const letters = [["T", degrees.TP, tp], ["C", degrees.CP, cp], ["E", degrees.EP, ep]].filter(([, degree]) => degree > 1).map(([letter, , index]) => `${letter}${index}`);
  const text = mine ? letters.slice(0, cell < 34 ? 1 : 2).join(" ") || `S${stage}` : `r${replica}`;
  figure.append(box);
  figure.append(svg("text", { x: x + cell / 2, y: y + TALL / 2 + 4, "text-anchor": "middle", class: mine ? `small onfill${stage % 2}` : "small soft" }, text));
  const places = [["stage", staged ? 2 : 1, stage], ["tensor rank", degrees.TP, tp], ["context rank", degrees.CP, cp], ["expert rank", degrees.EP, ep]];
  const lines = [`GPU ${rank}: replica ${replica}`, places.filter(([, degree]) => degree > 1).map(([name, , index]) => `${name} ${index}`).join(", ")];
  return { x, y, w: cell, h: TALL, element: box, lines: lines.filter(Boolean) };
}

// The network inside out, of every node group, and the way from one to the next.
function networkFigure(layout, width) {
  if (!layout.parts) return layout.tiers?.length ? tiersFigure(layout, width) : null;
  const ways = layout.between.map(({ groups, bandwidth }) => `${groups.join(" to ")}: ${three(bandwidth / 1e9)} GB/s per GPU`);
  return [...layout.parts.flatMap((part) => [html("h3", {}, partWords(part)), tiersFigure(part, width)].flat()),
    caption(`The pipeline goes from one node group to the next: ${ways.join("; ")}.`)];
}

// As wide as its bandwidth (by its logarithm), with the groups that need each tier.
function tiersFigure(layout, width) {
  const { tiers, groups } = layout;
  if (!groups.length) return caption("One GPU, or GPUs that need not talk to each other.");
  const high = 54, most = Math.log10(Math.max(...tiers.map((tier) => tier.bandwidth))), least = Math.log10(Math.min(...tiers.map((tier) => tier.bandwidth))) - 0.7;
  const over = (i) => groups.filter((group) => group.tier === i), timed = groups.some((group) => group.seconds != null);
  const figure = canvas(width, tiers.length * high, "network tiers and who uses them",
    tiers.map((tier, i) => `${tierWords(tier)}: ${over(i).map((group) => group.name).join(", ") || "nobody"}`).join("; "));
  const marks = [];
  tiers.forEach((tier, i) => {
    const y = i * high, wide = width * (Math.log10(tier.bandwidth) - least) / (most - least), users = over(i);
    const bar = svg("rect", { x: 0, y: y + 20, width: wide, height: 24, rx: 4, class: users.length ? "c0 fill" : "c6 stroke hollow" });
    figure.append(svg("text", { x: 0, y: y + 14 }, clipped(tierWords(tier), width)), bar,
      svg("text", { x: 10, y: y + 36, class: users.length ? "onfill0" : "soft" }, clipped(users.length ? users.map((group) => `${group.name} ${group.gpus}`).join("  ·  ") : "not needed", wide)));
    marks.push({ x: 0, y, w: width, h: high, element: bar, lines: [tierWords(tier), ...users.map((group) => `${group.name}: groups of ${group.gpus.toLocaleString("en")} GPUs${timed ? `, ${seconds(group.seconds)} an iteration not hidden` : ""}`)] });
  });
  listening(figure, marks, 2);
  const hidden = (group) => timed ? [seconds(group.seconds)] : [];
  const rows = groups.map((group) => [group.name, group.gpus.toLocaleString("en"), tiers[group.tier].name, group.inside.toLocaleString("en"), ...hidden(group), group.meaning]);
  return [figure, table(["group", ["GPUs", "number"], "talks over", [`of them in one ${tiers[0].name}`, "number"], ...(timed ? [["not hidden", "number"]] : []), ["what it does", "wide"]], rows, { name: "groups of GPUs" })];
}
const tierWords = ({ name, gpus, bandwidth }) => `${name}: joins ${counted(gpus, "GPU")}, ${three(bandwidth / 1e9)} GB/s per GPU`;
