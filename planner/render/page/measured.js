// Predicted over measured seconds of every shipped run; those nearest to the plan are ringed.
function measuredRuns({ groups, runs }, nearest, width) {
  const near = new Set(nearest.map(([group]) => group));
  const clip = (ratio) => Math.min(Math.max(ratio, 0.25), 2);
  const { figure, across, up } = frame(width, 300, { xs: runs.map(([time]) => time), ys: [0.25, 2], xlog: true, ylog: true,
    x: { name: "measured seconds per iteration", show: (value) => short(value) }, y: { name: "predicted / measured", show: (value) => String(value) } });
  figure.append(svg("path", { d: `M${across(Math.min(...runs.map(([time]) => time)))} ${up(1)}H${width - 14}`, class: "axis" }));
  const marks = [], front = [];
  let path = "";
  for (const [time, ratio, group] of runs) {
    const x = across(time), y = up(clip(ratio));
    if (near.has(groups[group])) front.push([x, y]);
    path += `M${x.toFixed(1)} ${y.toFixed(1)}h0`;
    marks.push({ x, y, get lines() { return [groups[group], `${seconds(time)} measured, predicted ${ratio >= 1 ? "+" : "−"}${Math.abs(100 * (ratio - 1)).toFixed(1)} %`]; } });
  }
  figure.append(svg("path", { d: path, class: "c0 stroke", "stroke-width": 4, "stroke-linecap": "round" }));
  for (const [x, y] of front) figure.append(svg("path", { d: `M${x - 5} ${y}a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z`, class: "c2 stroke plainline" }));
  listening(figure, marks, 12);
  const said = [{ text: "sources of the runs nearest to this plan", sign: tiny(shape("disc", 15, 7, 5, 2, true)) }];
  return [figure, ...(front.length ? [legend(said)] : [])];
}
