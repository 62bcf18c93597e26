// Other plans to compare, what stands against other choices, what would help, and what was taken for granted.
const compared = { place: null };

function othersSection(plan, drawn) {
  if (!plan.alternatives?.length) return null;
  const best = plan.prediction.iteration_seconds;
  const rows = plan.alternatives.map((one, place) => otherRow(one, place, best));
  const head = ["", "layout", "time", "against the best", "MFU", "memory", "differs in", ""].map((name, i) => html("th", { scope: "col", class: i > 1 && i < 6 ? "number" : null }, name));
  const panel = html("div", { id: "comparison", "aria-live": "polite" });
  const section = block("others", "Other plans", "Choose one to see, term by term, what it costs.",
    html("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Other plans" }, html("table", {}, html("thead", {}, html("tr", {}, ...head)), html("tbody", {}, ...rows))), panel);
  if (!plan.alternatives_complete) section.append(html("p", { class: "small" }, "Time ran out: there may be others."));
  compared.show = () => compareWith(panel, plan, drawn);
  if (compared.place != null && compared.place < rows.length) compared.show();
  return section;
}

function otherRow(one, place, best) {
  const more = one.iteration_seconds / best - 1;
  const input = html("input", { type: "radio", name: "compared", id: `other-${place}`, "aria-label": `compare with plan ${place + 2}`,
    checked: compared.place === place, onchange: () => { compared.place = place; compared.show(); } });
  const tied = one.tied ? [" ", html("abbr", { class: "chip", title: "It may as well be the faster one: measured runs cannot tell them apart." }, "tied")] : [];
  return html("tr", {},
    html("td", {}, input), html("td", {}, html("label", { for: `other-${place}` }, degreesOf(one.strategy).map(([name, word]) => `${word} ${one.strategy[name]}`).join(" ")), ...tied),
    html("td", { class: "number" }, seconds(one.iteration_seconds)), html("td", { class: "number" }, `+${percent(more)}`),
    html("td", { class: "number" }, percent(one.mfu)), html("td", { class: "number" }, `${gib(one.peak_memory_bytes).toFixed(1)} GiB`),
    html("td", { class: "wide" }, one.differs), html("td", {}, html("button", { type: "button", onclick: () => pinStrategy(one.strategy) }, "Pin")));
}

// Pin what a strategy is, so that the next answer is that one.
function pinStrategy(strategy) {
  for (const name of Object.keys(AXES)) if (strategy[name] != null) set(name, String(strategy[name]), { quiet: true });
  changed();
  showForm();
}

function compareWith(panel, plan, drawn) {
  const other = plan.alternatives[compared.place], terms = drawn?.points?.[compared.place + 1]?.terms;
  if (!other || !terms) return panel.replaceChildren(html("p", { class: "small" }, "The terms of this plan are not known yet."));
  const mine = plan.breakdown_seconds;
  return panel.replaceChildren(html("h3", {}, `Plan ${compared.place + 2} beside the best`),
    termTable(Object.fromEntries(Object.keys({ ...mine, ...terms }).map((name) => [name, [terms[name] ?? 0, mine[name] ?? 0]])), "this plan"));
}

// Seconds of each term, of this strategy and of the best, with a bar for the difference; the largest first.
function termTable(terms, title) {
  const rows = Object.entries(terms).filter(([, [a, b]]) => a > 0 || b > 0).sort(([, [a, b]], [, [c, d]]) => Math.abs(c - d) - Math.abs(a - b));
  const most = Math.max(...rows.map(([, [a, b]]) => Math.abs(a - b)), 1e-12);
  const lines = rows.map(([name, [mine, best]]) => {
    const more = mine - best, wide = 50 * Math.abs(more) / most;
    const bar = svg("svg", { viewBox: "0 0 100 10", class: "difference", "aria-hidden": "true", preserveAspectRatio: "none" },
      svg("rect", { x: 49.8, y: 0, width: 0.4, height: 10, class: "track" }),
      svg("rect", { x: more >= 0 ? 50 : 50 - wide, y: 1.5, width: wide, height: 7, class: more >= 0 ? "worse" : "better" }));
    const sign = Math.abs(more) < 5e-7 ? "same" : `${more > 0 ? "+" : "−"}${seconds(Math.abs(more))}`;
    return html("tr", {}, html("th", { scope: "row" }, termInWords(name)), html("td", { class: "number" }, mine ? seconds(mine) : "0"),
      html("td", { class: "number" }, best ? seconds(best) : "0"), html("td", { class: "number" }, sign), html("td", { class: "bar" }, bar));
  });
  const head = ["", title, "the best", "difference", ""].map((name, i) => html("th", { scope: "col", class: i && i < 4 ? "number" : null }, name || html("span", { class: "unseen" }, i ? "as a bar" : "term")));
  return html("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Term by term" }, html("table", { class: "terms" }, html("thead", {}, html("tr", {}, ...head)), html("tbody", {}, ...lines)));
}

function adviceSection(id, title, caption, lines) {
  if (!lines?.length) return null;
  const rows = lines.map((one) => html("li", {}, html("b", {}, one.subject), html("span", {}, one.text)));
  return block(id, title, caption, html("ul", { class: "advice" }, ...rows));
}

function assumedSection(plan) {
  const list = (lines) => html("ul", {}, ...lines.map((line) => html("li", {}, line)));
  const proof = plan.proof ? [html("h3", {}, "Proof"), list([plan.proof.statement, ...(plan.proof.scope ?? []).map((one) => `among strategies ${one}`)])] : [];
  return block("assumed", "What was taken for granted", "Say it in the form where it is otherwise.", list(plan.defaults ?? []),
    html("details", {}, html("summary", {}, "Proof and sources"), ...proof, html("h3", {}, "Sources"), list(plan.provenance.sources),
      html("p", { class: "small" }, `version ${plan.provenance.version}, catalogue ${plan.provenance.catalogue_hash}`)));
}

const block = (id, title, caption, ...content) => html("section", { class: "block", id, "aria-labelledby": `${id}-title` },
  html("h2", { id: `${id}-title` }, title), ...(caption ? [html("p", { class: "caption" }, caption)] : []), ...content);
