// The page of `plan report`: its data, and sections that draw themselves again when their width or the filter changes.
const DATA = JSON.parse(document.getElementById("data").textContent);
const points = DATA.points;
for (const point of points) Object.assign(point, { axes: bare(point.axes), terms: bare(point.terms) });
for (const figure of Object.keys(DATA.importance ?? {})) DATA.importance[figure] = bare(DATA.importance[figure]);
const STUDY = !DATA.plan;
const PRINTED = 700; // pixels between the margins of a printed page
const present = (figure) => points.some((point) => point[figure] != null);

const sections = [];
let paper = null;
function section(title, text, draw, { long = false, half = false } = {}) {
  const body = html("div"), id = `s${sections.length}`;
  const box = html("section", { class: [long && "long", half && "half"].filter(Boolean).join(" ") || null, "aria-labelledby": id }, html("h2", { id }, title));
  if (text) box.append(caption(text));
  box.append(body);
  document.getElementById("charts").append(box);
  sections.push({ box, body, draw });
}

function redraw() {
  hush();
  const some = chosenPoints();
  for (const one of sections) drawn(one, some);
  for (const one of sections) if (!one.box.hidden && one.width !== room(one)) drawn(one, some); // a neighbour went
}

const room = ({ box, body }) => paper ? (box.matches(".half:not(:has(+ .half[hidden]))") ? paper / 2 - 20 : paper) : Math.max(body.clientWidth, 260);
function drawn(one, some) {
  one.width = room(one);
  const parts = one.draw(some, one.width, redraw);
  one.box.hidden = parts === null;
  if (parts !== null && parts !== one.body.firstChild) one.body.replaceChildren(...[parts].flat());
}
window.addEventListener("beforeprint", () => { paper = PRINTED; redraw(); });
window.addEventListener("afterprint", () => { paper = null; redraw(); });
let due = 0, last = window.innerWidth;
window.addEventListener("resize", () => { // phones fire it when they scroll
  if (window.innerWidth === last) return;
  last = window.innerWidth;
  clearTimeout(due);
  due = setTimeout(redraw, 120);
});
