// What leaves the page: the answer as JSON, a picture, a link.
const LONG_LINK = 4000; // characters that programs take without cutting
const longLink = () => location.href.length > LONG_LINK ? ` It has ${(location.href.length / 1000).toFixed(1)} kB, as your model or machines stand in it: where a program cuts it, send the JSON, which “Check my script” takes.` : "";
function toolbar(plan) {
  const name = `plan-${shortName(plan.request.model)}-${plan.request.gpus}`;
  return html("div", { class: "toolbar row", role: "group", "aria-label": "Take it along" },
    copyButton(() => location.href, "a link to this question", "Link", longLink),
    html("button", { type: "button", onclick: () => save(`${name}.json`, JSON.stringify(plan, null, 2), "application/json") }, "JSON"),
    html("button", { type: "button", onclick: async () => save(`${name}.png`, await pictureOf(), "image/png") }, "PNG"),
    html("button", { type: "button", onclick: () => window.print() }, "Print"));
}

const STYLED = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "paint-order", "opacity", "font-size", "font-weight", "font-family", "text-anchor"];

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

// The headline, the figures and all drawings that stand on the page, below one another, with what their colours mean.
const WIDE = 1200, EDGE = 32;
async function pictureOf() {
  const looks = getComputedStyle(document.body), whole = svg("svg", { xmlns: SVG });
  const text = (words, x, y, size, weight = 400) => whole.append(svg("text", { x, y, fill: looks.color, "font-size": size, "font-weight": weight, "font-family": looks.fontFamily }, words));
  let y = 20;
  for (const line of wrapped(document.querySelector(".headline").textContent, 92)) text(line, EDGE, y += 28, 21);
  y += 12;
  document.querySelectorAll(".card").forEach((card, i) => {
    const x = EDGE + i * ((WIDE - 2 * EDGE) / 5);
    text(card.querySelector("h2").firstChild.textContent, x, y + 24, 13);
    text(card.querySelector(".value").textContent.trim(), x, y + 50, 18, 700);
  });
  y += 78;
  const drawings = [...document.querySelectorAll("#part-drawings svg[role=img]")].map((drawing) => [drawing, drawing.getBoundingClientRect()]).filter(([, box]) => box.width);
  const larger = (WIDE - 2 * EDGE) / Math.max(...drawings.map(([, box]) => box.width));
  let before = null;
  for (const [drawing, box] of drawings) {
    const section = drawing.closest("section"), group = headBefore(drawing);
    if (section !== before) {
      text(section.querySelector("h2").textContent, EDGE, y + 20, 17, 600);
      y = placedLegend(whole, section, y + 44, text);
    }
    if (group) text(group.textContent, EDGE, y += 12, 13, 600);
    y += group ? 12 : 0;
    before = section;
    whole.append(placed(withLooks(drawing), EDGE, y, larger * box.width, larger * box.height));
    y += larger * box.height + 26;
  }
  for (const definitions of document.querySelectorAll("svg.defs defs")) whole.prepend(withLooks(definitions));
  for (const [name, value] of Object.entries({ width: WIDE, height: y + EDGE, viewBox: `0 0 ${WIDE} ${y + EDGE}` })) whole.setAttribute(name, value);
  whole.prepend(svg("rect", { width: WIDE, height: y + EDGE, fill: looks.backgroundColor }));
  return rasterised(new XMLSerializer().serializeToString(whole), WIDE, y + EDGE);
}

// The heading of the node group that a drawing is of, where it is of one.
function headBefore(drawing) {
  let one = drawing;
  while (one && one.tagName !== "H3") one = one.previousElementSibling;
  return one;
}

function placed(drawing, x, y, width, height) {
  for (const [name, value] of Object.entries({ x, y, width, height })) drawing.setAttribute(name, value);
  return drawing;
}

// The entries of a legend in rows; where they end.
function placedLegend(whole, section, top, text) {
  let x = EDGE, y = top;
  for (const entry of section.querySelectorAll(".legend li")) {
    const wide = 46 + 7.2 * entry.textContent.length;
    if (x + wide > WIDE - EDGE) [x, y] = [EDGE, y + 22];
    whole.append(placed(withLooks(entry.querySelector("svg")), x, y - 11, 30, 14));
    text(entry.textContent, x + 36, y, 13);
    x += wide;
  }
  return section.querySelector(".legend") ? y + 14 : y - 12;
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
  for (const word of text.trim().split(/[ \n]+/)) {
    if (`${found.at(-1)} ${word}`.length > most) found.push(word);
    else found[found.length - 1] = `${found.at(-1)} ${word}`.trim();
  }
  return found;
}
