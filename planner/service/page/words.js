// Names and strategies in words.
const gib = (bytes) => bytes / 2 ** 30;
const whole = (value) => Number(value).toLocaleString("en");
const tokensInWords = (value) => {
  for (const [scale, unit] of [[1e12, "T"], [1e9, "B"], [1e6, "M"]]) if (value >= scale) return `${three(value / scale)}${unit}`;
  return whole(value);
};
const shortName = (record) => (record && typeof record === "object" ? record.name : String(record ?? ""));

// What each axis is, for those who meet the letters for the first time.
const MEANINGS = {
  tp: "Tensor parallel: each layer's matrices are split over so many GPUs.",
  cp: "Context parallel: each sequence is split over so many GPUs.",
  pp: "Pipeline parallel: the layers are split into so many stages.",
  vpp: "Chunks of layers that each pipeline stage holds.",
  ep: "Expert parallel: the experts are split over so many GPUs.",
  etp: "Tensor parallel inside each expert.",
  dp: "Data parallel: so many copies work on different sequences.",
  micro_batch_size: "Sequences that a GPU works on at a time.",
  zero_stage: "What data-parallel ranks share out: optimizer (1), gradients too (2), weights too (3).",
};
const DEGREES = [["tp", "TP"], ["cp", "CP"], ["pp", "PP"], ["vpp", "VPP"], ["ep", "EP"], ["etp", "ETP"], ["dp", "DP"]];

function strategyInWords(strategy) {
  const degrees = DEGREES.filter(([name]) => strategy[name] > 1 || ["tp", "pp", "dp"].includes(name)).map(([name, word]) => `${word} ${strategy[name]}`);
  const rest = [`micro-batch ${strategy.micro_batch_size}`, `ZeRO-${strategy.zero_stage}`];
  if (strategy.pp > 1) rest.push(strategy.schedule);
  if (strategy.recompute !== "none") rest.push(`recompute ${strategy.recompute}`);
  if ((strategy.offload ?? "none") !== "none") rest.push(`offload ${strategy.offload}`);
  return [...degrees, ...rest].join(", ");
}

// Options of the command line by the names of their fields in the form.
const inForm = (text) => text.replace(/`plan list \w+` shows all/, "the field offers all").replace(/--([a-z][a-z-]*[a-z])/g, (option, word) => {
  const words = FORM[offered?.options[word]]?.label ?? OF_SCRIPT[word === "env" ? "environment" : word]?.[0];
  return words ? `“${words}”` : option;
});

// Axes as the form calls them: "tp 4, micro_batch_size 2".
const inAxes = (text) => text.replace(/\b[a-z]+(?:_[a-z]+)*\b/g, (word) => (AXES[word]?.label ?? word.replaceAll("_", " ")));

// A part of the answer with its heading.
const panel = (id, title, text, ...content) => html("section", { class: "block", id, "aria-labelledby": `${id}-title` },
  html("h2", { id: `${id}-title` }, title), ...(text ? [caption(text)] : []), ...content);
const small = (...text) => html("p", { class: "small" }, ...text);
const listed = (several) => html("ul", {}, ...several.map((line) => html("li", {}, inForm(line))));
const warning = (text, kind = "bad") => html("p", { class: kind }, `⚠ ${inForm(text)}`);
