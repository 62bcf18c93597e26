// What leaves the page: the answer as JSON, a picture, a link.
function toolbar(plan) {
  const name = `plan-${shortName(plan.request.model)}-${plan.request.gpus}`;
  return html("div", { class: "toolbar row", role: "group", "aria-label": "Take it along" },
    copyButton(() => location.href, "a link to this question", "Link"),
    html("button", { type: "button", onclick: () => save(`${name}.json`, JSON.stringify(plan, null, 2), "application/json") }, "JSON"),
    html("button", { type: "button", onclick: async () => save(`${name}.png`, await pictureOf(plan), "image/png") }, "PNG"),
    html("button", { type: "button", onclick: () => window.print() }, "Print"));
}

const STYLED = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "opacity", "font-size", "font-weight", "font-family", "text-anchor"];

// A drawing with its looks written into it, as a picture has no style sheet.
function withLooks(drawing) {
  const copy = drawing.cloneNode(true), own = [drawing, ...drawing.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((element, i) => {
    const looks = getComputedStyle(own[i]);
    for (const name of STYLED) element.setAttribute(name, looks.getPropertyValue(name));
    element.removeAttribute("class");
  });
  return copy;
}

// The headline, the figures and all drawings that stand on the page, below one another.
async function pictureOf(plan) {
  const wide = 1200, edge = 32, looks = getComputedStyle(document.body), ink = looks.color;
  const text = (words, y, size, weight = 400, x = edge) => svg("text", { x, y, fill: ink, "font-size": size, "font-weight": weight, "font-family": looks.fontFamily }, words);
  const whole = svg("svg", { xmlns: SVG });
  let y = 24;
  for (const line of wrapped(document.querySelector(".headline").textContent, 88)) whole.append(text(line, y += 30, 24, 600));
  y += 20;
  document.querySelectorAll(".card").forEach((card, i) => {
    const x = edge + i * ((wide - 2 * edge) / 5);
    whole.append(text(card.querySelector("h2").firstChild.textContent, y + 24, 14, 400, x), text(card.querySelector(".value").firstChild.textContent, y + 58, 26, 700, x));
  });
  y += 92;
  for (const drawing of document.querySelectorAll("#part-drawings svg[role=img]")) {
    const title = drawing.closest("section").querySelector("h2")?.textContent ?? "", box = drawing.getBoundingClientRect();
    if (!box.width) continue;
    const high = (wide - 2 * edge) * box.height / box.width, copy = withLooks(drawing);
    for (const [name, value] of Object.entries({ x: edge, y: y + 34, width: wide - 2 * edge, height: high })) copy.setAttribute(name, value);
    whole.append(text(title, y + 20, 18, 600), copy);
    y += high + 60;
  }
  for (const definitions of document.querySelectorAll("svg.defs defs")) whole.prepend(withLooks(definitions));
  for (const [name, value] of Object.entries({ width: wide, height: y + edge, viewBox: `0 0 ${wide} ${y + edge}` })) whole.setAttribute(name, value);
  whole.prepend(svg("rect", { width: wide, height: y + edge, fill: looks.backgroundColor }));
  return rasterised(new XMLSerializer().serializeToString(whole), wide, y + edge);
}

async function rasterised(text, wide, high) {
  const image = new Image(), canvas = html("canvas", { width: 2 * wide, height: 2 * high });
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  canvas.getContext("2d").drawImage(image, 0, 0, 2 * wide, 2 * high);
  return new Promise((done) => { canvas.toBlob(done, "image/png"); });
}

function wrapped(text, most) {
  const found = [""];
  for (const word of text.trim().split(/\s+/)) {
    if (`${found.at(-1)} ${word}`.length > most) found.push(word);
    else found[found.length - 1] = `${found.at(-1)} ${word}`.trim();
  }
  return found;
}
