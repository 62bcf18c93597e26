const FITTED = [{ text: "fit: constants were fitted to these", sign: tiny(shape("disc", 15, 7, 3, 0)) }, { text: "dev: none were fitted to these", sign: tiny(shape("triangle", 15, 7, 3.5, 1, true)) }];

// Predicted over measured seconds of every shipped run; those nearest to the plan are ringed.
function measuredRuns({ groups, runs }, nearest, width, entries = FITTED) {
  const near = new Set(nearest.map(([group]) => group));
  const clip = (ratio) => Math.min(Math.max(ratio, 0.25), 2);
  const { figure, across, up } = frame(width, 300, { xs: runs.map(([time]) => time), ys: [0.25, 2], xlog: true, ylog: true,
    x: { name: "measured seconds per iteration", show: (value) => short(value) }, y: { name: "predicted / measured", show: (value) => String(value) } });
  figure.append(svg("path", { d: `M${across(Math.min(...runs.map(([time]) => time)))} ${up(1)}H${width - 14}`, class: "axis" }));
  const paths = ["", ""], marks = [], front = [];
  for (const [time, ratio, split, group] of runs) {
    const x = across(time), y = up(clip(ratio));
    if (near.has(groups[group])) front.push([x, y]);
    paths[split] += split ? `M${x.toFixed(1)} ${(y - 3).toFixed(1)}l2.6 4.5h-5.2z` : `M${x.toFixed(1)} ${y.toFixed(1)}h0`;
    marks.push({ x, y, get lines() { return [groups[group], `${seconds(time)} measured, predicted ${ratio >= 1 ? "+" : "−"}${Math.abs(100 * (ratio - 1)).toFixed(1)} %`, ...(entries.length ? [split ? "dev: nothing was fitted to it" : "fit"] : [])]; } });
  }
  figure.append(svg("path", { d: paths[0], class: "c0 stroke", "stroke-width": 4, "stroke-linecap": "round" }));
  figure.append(svg("path", { d: paths[1], class: "c1 stroke plainline", "stroke-width": 1 }));
  for (const [x, y] of front) figure.append(svg("path", { d: `M${x - 5} ${y}a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z`, class: "c2 stroke plainline" }));
  listening(figure, marks, 12);
  const said = [...entries];
  if (front.length) said.push({ text: "sources of the runs nearest to this plan", sign: tiny(shape("disc", 15, 7, 5, 2, true)) });
  return [figure, ...(said.length ? [legend(said)] : [])];
}
