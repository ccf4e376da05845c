// The Open Inference Protocol, as far as this page speaks it. Addresses are relative: a gateway may put the server
// under a prefix.

/** What the server said instead of an answer, in its own words. */
export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

let token = "";

/** Carry a bearer token from now on; it is kept in this variable and nowhere else. */
export function carry(given) {
  token = given.trim();
  // No header can hold them, and `fetch` would call that a server that cannot be reached.
  const [odd] = token.match(/[^ -~]/u) ?? [];
  if (!odd) return;
  const code = odd.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
  token = "";
  throw new Refusal(401, `The token has a character that no token has, U+${code}. Copy it again.`);
}

/** Names of all models. */
export async function models() {
  return (await ask("v2/models")).models;
}

/** A model's inputs, outputs and parameters. */
export async function metadata(model) {
  return ask(`v2/models/${encodeURIComponent(model)}`);
}

/** Answer to one text of each input: values by output, nested as their shapes say, and how long it took. */
export async function infer(model, texts, parameters, signal) {
  const inputs = Object.entries(texts).map(([name, text]) => ({ name, datatype: "BYTES", shape: [1], data: [text] }));
  const began = performance.now();
  const body = await ask(`v2/models/${encodeURIComponent(model)}/infer`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ inputs, parameters }),
    signal,
  });
  const elapsed_ms = performance.now() - began;
  return { elapsed_ms, outputs: Object.fromEntries(body.outputs.map((each) => [each.name, nested(each)])) };
}

async function ask(path, request = {}) {
  const headers = { ...request.headers, ...(token && { authorization: `Bearer ${token}` }) };
  const response = await fetch(path, { ...request, headers, cache: "no-store" }).catch(unreachable);
  const text = await response.text().catch(unreachable);
  const body = parsed(text);
  if (response.ok && body) return body;
  const wait_s = response.headers.get("retry-after");
  const said = body?.error ?? `The server answered ${response.status}: ${text.slice(0, 300)}`;
  throw new Refusal(response.status, wait_s ? `${said} (In ${wait_s} s.)` : said);
}

function unreachable(error) {
  if (error.name === "AbortError") throw error;
  throw new Refusal(0, `The server cannot be reached (${error.message}). Look whether it runs, and ask again.`);
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function nested({ shape, data }) {
  const flat = data.flat(Infinity);
  if (shape.length < 2) return flat;
  const [rows, columns] = shape;
  return Array.from({ length: rows }, (_, row) => flat.slice(row * columns, (row + 1) * columns));
}
