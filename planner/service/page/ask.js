// Questions to the service: the next of a kind ends the one before it.
const running = new Map();

class Refusal extends Error {
  constructor(message, { field = null, status = 0, kind = "" } = {}) {
    super(message);
    Object.assign(this, { field, status, kind });
  }
}

const stop = (slot) => running.get(slot)?.abort();

// The answer; null where a later question of the same slot took its place.
async function ask(kind, body, slot = kind) {
  stop(slot);
  const mine = new AbortController();
  running.set(slot, mine);
  try {
    return await fetched(`/v1/${kind}`, body, mine.signal);
  } catch (error) {
    if (mine.signal.aborted) return null;
    throw error;
  } finally {
    if (running.get(slot) === mine) running.delete(slot);
  }
}

async function fetched(path, body, signal) {
  let got;
  try {
    const sent = body === undefined ? {} : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
    got = await fetch(path, { ...sent, signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refusal("The service does not answer. Is `plan serve` still running?");
  }
  const document = await got.json().catch(() => null);
  if (got.ok && document) return document;
  const said = document?.error ?? { message: `the service answered ${got.status}` };
  throw new Refusal(said.message, { field: said.field ?? null, status: got.status, kind: said.kind });
}

// Run what follows a change once nothing changed for some milliseconds.
function settled(after, action) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...given), after);
  };
}
