// @ts-check
// What the overview follows: the events that its state asks for, listed by /eventbus/v1/events, then watched.
import { call } from "./api.js";
import { fieldSelector, namespaceOf } from "./address.js";
import { watchOf } from "./live.js";
import { iso } from "./time.js";

const LIMIT = 500;

/** For `Live`. *listed* is told {events, begins, more} each time that all begins anew. */
export function listing(state, { since, until }, listed) {
  const selectors = { fieldSelector: fieldSelector(state), labelSelector: state.labels };
  const list = async (signal) => {
    const query = {
      namespace: namespaceOf(state),
      ...selectors,
      q: state.q,
      since: iso(since),
      until: until ? iso(until) : "",
      limit: LIMIT,
    };
    // Warnings have a list of their own, so that none hides behind five hundred newer others.
    const warnings = { ...query, fieldSelector: [query.fieldSelector, "type=Warning"].filter(Boolean).join(",") };
    const asked = [call("/eventbus/v1/events", query, { signal })];
    if (!state.type) asked.push(call("/eventbus/v1/events", warnings, { signal }));
    const found = await Promise.all(asked);
    listed({
      events: found.flatMap((one) => one.items),
      begins: Date.parse(found[0].begins),
      more: found.some((one) => one.more),
    });
    // The older of the two, which were made at once: what came between is told again.
    return found.map(({ resourceVersion }) => resourceVersion).reduce((a, b) => (Number(b) < Number(a) ? b : a));
  };
  return { list, watch: watchOf(namespaceOf(state), selectors), ended: Boolean(until) };
}
