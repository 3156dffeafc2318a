// @ts-check
// The state of the page is its address: whoever is sent a link sees the same.

/** Facets, in the order they are shown: name in the address, in a row and in the counts; field selector. */
export const FACETS = [
  { name: "type", label: "Type", field: "type" },
  { name: "reason", label: "Reason", field: "reason" },
  { name: "kind", label: "Kind", field: "involvedObject.kind" },
  { name: "namespace", label: "Namespace", field: "metadata.namespace" },
  { name: "source", label: "Source", field: "source" },
];

export const LOOK_BACKS = ["15m", "1h", "3h", "6h", "12h", "1d", "3d", "7d", "14d"];
const DEFAULTS = { view: "overview", last: "1h", sort: "warnings" };
const NAMES = [
  "view",
  "object",
  "last",
  "from",
  "to",
  "q",
  "labels",
  "fields",
  "sort",
  ...FACETS.map(({ name }) => name),
];

/** The state that an address means. A facet is its word, with a ! before it where that is left out. */
export function read(search = location.search) {
  const query = new URLSearchParams(search);
  /** @type {Record<string, string>} */
  const state = { ...DEFAULTS };
  for (const name of NAMES) if (query.get(name)) state[name] = query.get(name);
  if (state.object) state.view = "object";
  return state;
}

/** The address of a state. */
export function write(state) {
  const query = new URLSearchParams();
  for (const name of NAMES) {
    const value = state[name];
    if (value && value !== DEFAULTS[name] && !(name === "view" && value === "object")) query.set(name, value);
  }
  // Slashes in an object's name need no escape, and a link that can be read is worth more.
  const text = query.toString().replaceAll("%2F", "/").replaceAll("%3A", ":");
  return text ? `?${text}` : location.pathname;
}

/** The address of one object's story. */
export function objectAddress({ kind, namespace, name }) {
  return write({ object: [kind, namespace || "", name].map((part) => encodeURIComponent(part ?? "")).join("/") });
}

/** The object that an address names. */
export function objectOf(state) {
  const [kind = "", namespace = "", ...rest] = (state.object ?? "").split("/").map(safely);
  return { kind, namespace, name: rest.join("/") };
}

/** The period asked for, in ms: {since, until}; until null: now. */
export function periodOf(state, lastSeconds, now = Date.now()) {
  const from = Date.parse(state.from ?? ""),
    to = Date.parse(state.to ?? "");
  if (!Number.isNaN(from)) return { since: from, until: Number.isNaN(to) ? null : to };
  return { since: now - (lastSeconds ?? 3600) * 1000, until: null };
}

/** What the server selects by: facets with what was typed, as kubectl's --field-selector. */
export function fieldSelector(state) {
  const terms = state.fields ? [state.fields] : [];
  for (const { name, field } of FACETS) {
    const value = state[name];
    if (!value || (name === "namespace" && !value.startsWith("!"))) continue;
    const negated = value.startsWith("!");
    const word = (negated ? value.slice(1) : value).replace(/[\\,=]/g, "\\$&");
    terms.push(`${field}${negated ? "!=" : "="}${word}`);
  }
  return terms.join(",");
}

/** The one namespace that is asked for; "": all. */
export function namespaceOf(state) {
  return state.namespace && !state.namespace.startsWith("!") ? state.namespace : "";
}

/** Does a row of the list, or of the counts, fit the facets? *but*: the one that is not asked. */
export function fitsFacets(state, words, but = "") {
  return FACETS.every((facet) => {
    const value = state[facet.name];
    if (!value || facet.name === but) return true;
    const word = words[facet.name];
    return value.startsWith("!") ? word !== value.slice(1) : word === value;
  });
}

function safely(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
