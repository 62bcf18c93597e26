// Figures and strategies in words.
const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)} %`;
const whole = (value) => Number(value).toLocaleString("en");
const gib = (bytes) => bytes / 2 ** 30;
const dollars = (value) => {
  for (const [scale, unit] of [[1e9, " billion"], [1e6, " million"]]) if (value >= scale) return `$${three(value / scale)}${unit}`;
  return `$${value >= 1000 ? whole(Math.round(value)) : three(value)}`;
};
const tokensInWords = (value) => {
  for (const [scale, unit] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]]) if (value >= scale) return `${three(value / scale)}${unit}`;
  return String(value);
};
const durationInWords = (days) => {
  if (days >= 1.5) return `${three(days)} days`;
  return days >= 1.5 / 24 ? `${three(days * 24)} hours` : `${three(days * 1440)} minutes`;
};
const nameIn = (record) => (record && typeof record === "object" ? record.title || record.name : String(record ?? ""));
const shortName = (record) => (record && typeof record === "object" ? record.name : String(record ?? ""));
const plural = (count, word) => `${whole(count)} ${word}${count === 1 ? "" : "s"}`;

const DEGREES = [["tp", "TP"], ["cp", "CP"], ["pp", "PP"], ["vpp", "VPP"], ["ep", "EP"], ["etp", "ETP"], ["dp", "DP"]];
// What each degree is, for those who meet the letters for the first time.
const MEANINGS = {
  tp: "Tensor parallel: each layer's matrices are split over so many GPUs.",
  cp: "Context parallel: each sequence is split over so many GPUs.",
  pp: "Pipeline parallel: the layers are split into so many stages.",
  vpp: "Chunks of layers that each pipeline stage holds.",
  ep: "Expert parallel: the experts are split over so many GPUs.",
  etp: "Tensor parallel inside each expert.",
  dp: "Data parallel: so many copies work on different sequences.",
  micro_batch_size: "Sequences that a GPU works on at a time.",
  zero_stage: "What data-parallel ranks share out: optimizer (1), gradients (2), weights (3).",
};

function degreesOf(strategy) {
  return DEGREES.filter(([name]) => strategy[name] > 1 || ["tp", "pp", "dp"].includes(name));
}

function strategyInWords(strategy) {
  return [...degreesOf(strategy).map(([name, word]) => `${word} ${strategy[name]}`), ...restOf(strategy)].join(", ");
}

// What a strategy says beside its degrees, where it is not the usual.
function restOf(strategy) {
  const said = [`micro-batch ${strategy.micro_batch_size}`, `ZeRO-${strategy.zero_stage}`];
  if (strategy.pp > 1) said.push(strategy.schedule);
  if (strategy.recompute !== "none") said.push(`recompute ${strategy.recompute}`);
  if ((strategy.offload ?? "none") !== "none") said.push(`offload ${strategy.offload}`);
  return said;
}

// What each term of the iteration is.
const TERMS = {
  compute: "compute", recompute: "recomputed activations", tp: "tensor-parallel traffic", cp: "context-parallel traffic",
  ep: "expert traffic", pp: "pipeline traffic", bubble: "pipeline idle", dp: "gradient and weight traffic",
  optimizer: "optimizer", host: "launches from the host", straggler: "waiting for the slowest", offload: "traffic to host memory",
};
const termInWords = (name) => TERMS[name] ?? name.replaceAll("_", " ");
