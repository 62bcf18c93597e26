// The sentence and the cards that an answer opens with, and its alternatives to pick from and compare.
const LEVELS = { good: ["✓", "good"], warn: ["!", "look at this"], bad: ["✗", "bad"] };

function headline(data) { return html("p", { class: "headline" }, data.headline); }

function cards(list) {
  return html("ul", { class: list.length < 4 ? "cards few" : "cards" }, ...list.map(({ name, value, detail, meaning, level }) => {
    const [sign, word] = LEVELS[level] ?? [];
    const mark = sign ? html("span", { class: `level ${level}`, role: "img", "aria-label": word }, sign) : "";
    return html("li", { class: "card" }, html("h2", {}, name, " ", mark), html("p", { class: "value" }, value),
      ...detail.split("; ").map((line) => html("p", { class: "detail" }, unbroken(line))), html("p", { class: "meaning" }, meaning));
  }));
}

// Plans, the best first: one is picked with a radio button and set against the best term by term.
const picks = new WeakMap();
function alternatives(plans, width, again, { picked = null, onpick = null } = {}) {
  const [best] = plans, chosen = plans[picked ?? picks.get(plans) ?? (plans.length > 1 ? 1 : 0)] ?? best, name = `pick${Math.random()}`;
  const pick = (i) => { picks.set(plans, i); if (onpick) onpick(plans[i], i); again(); };
  const rows = plans.map((plan, i) => {
    const input = html("input", { type: "radio", name, checked: plan === chosen, "aria-label": `compare plan ${plan.axes.plan}`, onchange: () => pick(i) });
    const differs = plan !== best && plan.note ? [html("span", { class: "differs" }, plan.note)] : [];
    return [html("label", {}, ...(plans.length > 1 ? [input, " "] : []), label(plan.axes.plan)), html("span", {}, plan.strategy, ...differs), said("seconds", plan.seconds), plan === best || !best.seconds ? "" : change(plan.seconds / best.seconds - 1),
      said("mfu", plan.mfu), said("days", plan.days), said("cost", plan.cost), said("gib", plan.gib)];
  });
  const heads = ["plan", ["strategy", "wide"], ["iteration", "number"], ["against best", "number"], ["MFU", "number"], ["days", "number"], ["cost", "number"], ["GiB", "number"]];
  const parts = [table(heads, rows, { name: "plans", class: "plans" })];
  if (chosen !== best && Object.keys(chosen.terms).length) parts.push(compared(best, chosen, width));
  return parts;
}

const change = (share) => Math.abs(share) < 5e-5 ? "same" : `${share > 0 ? "+" : "−"}${percent(Math.abs(share), Math.abs(share) < 5e-4 ? 2 : Math.abs(share) < 0.1 ? 1 : 0)}`;

// How much longer or shorter every term of one plan is than of the best: bars to the right and to the left.
function compared(best, other, width) {
  const names = distinct([...Object.keys(best.terms), ...Object.keys(other.terms)]);
  const gaps = names.map((name) => [name, (other.terms[name] ?? 0) - (best.terms[name] ?? 0)]).filter(([, gap]) => Math.abs(gap) > 1e-4 * best.seconds);
  gaps.sort(([, a], [, b]) => Math.abs(b) - Math.abs(a));
  if (!gaps.length) return caption(`Plan ${other.axes.plan} takes the time of the best in every term.`);
  const narrow = width < 480, left = narrow ? 0 : Math.min(280, width * 0.45), right = 84, most = Math.abs(gaps[0][1]), high = narrow ? 38 : 22;
  const both = gaps.some(([, gap]) => gap > 0) && gaps.some(([, gap]) => gap < 0), room = (width - left - right) / (both ? 2 : 1);
  const middle = gaps[0][1] < 0 || both ? left + room : left;
  const text = gaps.map(([name, gap]) => `${wordOf(name)} ${gap > 0 ? "+" : "−"}${seconds(Math.abs(gap))}`).join(", ");
  const figure = canvas(width, gaps.length * high + 8, `plan ${other.axes.plan} against the best, term by term`, text);
  gaps.forEach(([name, gap], i) => {
    const y = i * high + (narrow ? 20 : 4), wide = Math.max(room * Math.abs(gap) / most, 1), x = gap > 0 ? middle : middle - wide;
    const words = narrow ? svg("text", { x: 0, y: y - 4, class: "halo" }, clipped(wordOf(name), width)) : svg("text", { x: left - 8, y: y + 14, "text-anchor": "end" }, clipped(wordOf(name), left));
    figure.append(words, block(name, { x, y: y + 2, width: wide, height: 16 }),
      svg("text", { x: width - right + 8, y: y + 14 }, `${gap > 0 ? "+" : "−"}${seconds(Math.abs(gap))}`));
  });
  figure.append(svg("path", { d: `M${middle} 0V${gaps.length * high + 8}`, class: "axis" }));
  return html("div", { class: "whole" }, html("h3", {}, `Plan ${other.axes.plan} against the best: ${change(other.seconds / best.seconds - 1)}`),
    caption("Seconds of an iteration that each term takes more (right) or less (left)."), figure);
}
