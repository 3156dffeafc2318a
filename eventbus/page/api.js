// @ts-check
// Requests to the worker that served this page: the API that kubectl uses, and /eventbus/v1.

/** What the API refused, with its Status' own words. */
export class Refused extends Error {
  constructor(code, message, retryAfter) {
    super(message);
    this.code = code;
    this.retryAfter = retryAfter;
  }
}

/**
 * Send a request and resolve to its JSON, or null for 204. Rejects with Refused for an error status, and with TypeError if
 * there is no answer.
 *
 * @param {string} path
 * @param {Record<string, any>} [query] Empty and missing values are left out.
 * @param {{ method?: string, body?: object, signal?: AbortSignal }} [options]
 */
export async function call(path, query = {}, { method = "GET", body, signal } = {}) {
  const response = await fetch(withQuery(path, query), {
    method,
    signal,
    cache: "no-store",
    credentials: "same-origin",
    headers: body ? { "Content-Type": "application/json", Accept: "application/json" } : { Accept: "application/json" },
    body: body ? JSON.stringify(body) : undefined,
  });
  if (!response.ok) throw await refusalOf(response);
  return response.status === 204 ? null : response.json();
}

/** The answer of a request, or {missing} if it is not served or not allowed for this user. */
export async function optional(request) {
  try {
    return await request;
  } catch (error) {
    if (error instanceof Refused && [403, 404].includes(error.code)) return { missing: error.message };
    throw error;
  }
}

/** The lines of a watch, parsed, as an async iterator over what arrived at once. Ends with the response. */
export async function* watchLines(path, query, signal, onOpen) {
  const response = await fetch(withQuery(path, query), {
    signal,
    cache: "no-store",
    headers: { Accept: "application/json" },
  });
  if (!response.ok) throw await refusalOf(response);
  onOpen();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    const frames = lines.filter(Boolean).map((text) => JSON.parse(text));
    if (frames.length) yield frames;
  }
}

async function refusalOf(response) {
  let message = `${response.status} ${response.statusText}`;
  try {
    const body = await response.json();
    message = (typeof body === "string" ? body : body.message) || message; // Alertmanager's API answers with a string
  } catch {
    // no Status: a proxy's answer
  }
  return new Refused(response.status, message, Number(response.headers.get("Retry-After")) || 0);
}

function withQuery(path, query) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}
