// Files that start the plan, for each framework and launcher, to copy or to save.
const launchState = { to: null, version: null };

function launchSection(plan) {
  if (!offered) return null;
  const to = launchState.to, place = html("div", { id: "launch-files", "aria-live": "polite" });
  const kinds = { framework: "Frameworks", recipe: "Recipes of trainers", launcher: "Launchers" };
  const names = html("select", { id: "launch-to", onchange: () => { launchState.to = names.value; launchState.version = null; versions(); look(); } },
    ...Object.entries(kinds).map(([kind, label]) => html("optgroup", { label },
      ...offered.exporters.filter((one) => one.kind === kind).map((one) => html("option", { value: one.name, selected: one.name === to }, `${one.name} – ${one.title}`)))));
  const version = html("select", { id: "launch-version", onchange: () => { launchState.version = version.value; look(); } });
  const versions = () => {
    const known = offered.exporters.find((one) => one.name === names.value)?.versions ?? [];
    version.replaceChildren(...known.map((one) => html("option", { value: one, selected: one === launchState.version }, one)));
  };
  const look = () => showLaunch(plan, names.value, version.value, place);
  versions();
  if (to) look();
  else showLaunch(plan, null, null, place).then((found) => { if (found) { names.value = found; versions(); } });
  return panel("launch", "Launch files", null, html("div", { class: "row" }, html("label", { for: "launch-to" }, "for"), names,
    html("label", { for: "launch-version" }, "version"), version), place);
}

async function showLaunch(plan, to, version, place) {
  place.setAttribute("aria-busy", "true");
  try {
    const made = await ask("export", { plan, to, version });
    place.removeAttribute("aria-busy");
    if (made) place.replaceChildren(...launchFiles(made));
    return made?.to;
  } catch (error) {
    place.replaceChildren(warning(error.message));
    place.removeAttribute("aria-busy");
    return null;
  }
}

function launchFiles(made) {
  const files = Object.entries(made.files).map(([name, text]) => html("figure", { class: "file" },
    html("figcaption", {}, html("code", {}, name), html("span", { class: "row" },
      copyButton(text, name), html("button", { type: "button", onclick: () => save(name, text, "text/plain") }, "Save", html("span", { class: "unseen" }, ` ${name}`)))),
    html("pre", { tabindex: 0 }, text)));
  const program = made.program.length ? [html("details", { class: "small" }, html("summary", {}, "What every rank runs"), html("code", {}, made.program.join(" ")))] : [];
  const variables = Object.entries(made.environment);
  const environment = variables.length ? [html("p", { class: "small" }, "With ", html("code", {}, variables.map(([name, value]) => `${name}=${value}`).join(" ")))] : [];
  const remarks = made.remarks.length ? [html("ul", { class: "small" }, ...made.remarks.map((line) => html("li", {}, line)))] : [];
  return [...files, ...program, ...environment, ...remarks];
}

function copyButton(text, what, words = "Copy", remark = () => "") {
  const button = html("button", { type: "button", onclick: async () => {
    await navigator.clipboard.writeText(typeof text === "function" ? text() : text);
    tellStatus(`Copied ${what}.${remark()}`);
    button.firstChild.textContent = "Copied";
    setTimeout(() => { button.firstChild.textContent = words; }, 1500);
  } }, words, html("span", { class: "unseen" }, ` ${what}`));
  return button;
}

function save(name, content, type) {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  html("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
