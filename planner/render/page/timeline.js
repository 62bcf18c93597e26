// One iteration, a row for every stage: forward, backward, traffic, and the gaps in between.
const ROLES = { F: ["forward", 0], B: ["backward", 1], W: ["weight gradients", 5], comm: ["communication (lower half of a row)", 2], once: ["once an iteration", 7] };
function roleOf(stream, name) {
  if (!/^[FBW]\d/.test(name)) return "once";
  return stream === "compute" ? name[0] : "comm";
}

function timelineFigure(timeline, remark, width) {
  if (!timeline) return remark ? caption(remark) : null;
  const { events, streams, names, span, groups } = timeline, stages = Math.max(...events.map((event) => event[0])) + 1;
  const left = 34, high = Math.max(Math.min(260 / stages, 26), 5);
  const begins = groups.map((group, stage) => group !== groups[stage - 1]), band = 18, above = (stage) => band * begins.slice(0, stage + 1).filter(Boolean).length;
  const top = (stage) => stage * high + above(stage), height = top(stages - 1) + high + 34;
  const across = scale([0, span], left, width - 8, {}), picture = canvas(width, height, "timeline of the pipeline", `${remark} ${counted(stages, "stage")}${groups.length ? ` on ${distinct(groups).join(" and ")}` : ""}, ${seconds(span)}`);
  const paths = {}, marks = [];
  for (const [stage, stream, start, length, name] of events) {
    const role = roleOf(streams[stream], names[name]), x = across(start / 1e6), wide = Math.max(across((start + length) / 1e6) - x, 0.2);
    const thin = role === "comm" ? 0.45 : 1, y = top(stage) + 1 + (1 - thin) * (high - 2), tall = (high - 2) * thin, inked = (wide > 3 ? wide - 0.7 : wide).toFixed(2);
    paths[role] = (paths[role] ?? "") + `M${x.toFixed(2)} ${y.toFixed(1)}h${inked}v${tall.toFixed(1)}h-${inked}z`;
    marks.push({ x, y, w: wide, h: tall, get lines() { return [`${names[name]} on stage ${stage}${groups.length ? ` (${groups[stage]})` : ""}: ${streams[stream]}`, `${seconds(length / 1e6)} from ${seconds(Math.max(start, 0.001) / 1e6)}`]; } });
  }
  for (const [role, path] of Object.entries(paths)) {
    picture.append(svg("path", { d: path, class: `c${ROLES[role][1]} fill` }));
  }
  for (let stage = 0; stage < stages; stage += Math.ceil(12 / high)) picture.append(svg("text", { x: left - 6, y: top(stage) + 0.5 * high + 4, "text-anchor": "end", class: "soft" }, String(stage)));
  groups.forEach((group, stage) => { if (begins[stage]) picture.append(svg("text", { x: left, y: top(stage) - 5 }, clipped(group, width - left))); });
  for (const tick of across.ticks) picture.append(svg("text", { x: across(tick), y: height - 16, "text-anchor": "middle", class: "soft" }, String(tick)));
  picture.append(svg("text", { x: (left + width) / 2, y: height - 2, "text-anchor": "middle", class: "soft" }, "seconds; a row for every stage"));
  listening(picture, marks, 2);
  const entries = Object.keys(ROLES).filter((role) => paths[role]).map((role) => (
    { text: ROLES[role][0], sign: tiny(svg("rect", { x: 6, y: 1, width: 20, height: 12, class: `c${ROLES[role][1]} fill` })) }));
  return [caption(remark), legend(entries), picture, behind("Busy time", ["stage", ["computing", "number"], ["of the iteration", "number"]], busy(timeline, stages))];
}

// Of every stage, how long it computes: forward, backward, weight gradients.
function busy({ events, streams, names, span, groups }, stages) {
  const time = Array(stages).fill(0);
  for (const [stage, stream, , length, name] of events) if (streams[stream] === "compute" && /^[FBW]\d/.test(names[name])) time[stage] += length / 1e6;
  return time.map((all, stage) => [groups.length ? `${stage}, ${groups[stage]}` : String(stage), seconds(all), percent(all / span)]);
}
