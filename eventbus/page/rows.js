// @ts-check
// The rows of the list: listed events and later changes, in an order that does not jump while a user reads.
import { fitsFacets } from "./address.js";
import { rowOf } from "./event.js";

/** Rows kept. Beyond this, the rows seen longest ago are dropped, so that an open page does not grow. */
export const MOST = 2000;
/** Changes a second beyond which new rows wait for a click. */
const TOO_MANY = 30;

const SORTS = {
  warnings: (a, b) => b.warning - a.warning || b.last - a.last,
  last: (a, b) => b.last - a.last,
  count: (a, b) => b.count - a.count || b.last - a.last,
  first: (a, b) => a.first - b.first,
};

/** The rows outlive renderings; *changed* is called when there is something new to draw. */
export class Rows {
  paused = false;
  /** True while a row is selected or the list is scrolled down: rows keep their places. */
  held = false;
  #rows = new Map();
  #waiting = new Map();
  #order = [];
  #recent = [];
  #changed;

  constructor(changed) {
    this.#changed = changed;
  }

  listed(events) {
    this.#rows = new Map();
    for (const row of events.map(rowOf)) if (!isOlder(row, this.#rows.get(row.key))) this.#rows.set(row.key, row);
    this.#waiting.clear();
    this.#order = [];
    this.#changed();
  }

  /** Apply changes. Shown rows change in place; new rows join, or wait. */
  take(frames, now = Date.now()) {
    this.#recent.push([now, frames.length]);
    const wait = this.paused || this.held || this.rate(now) > TOO_MANY;
    for (const { type, object } of frames) {
      const row = rowOf(object);
      const shown = this.#rows.get(row.key);
      if (isOlder(row, this.#waiting.get(row.key) ?? shown)) continue; // a repeated change
      if (type === "DELETED") {
        this.#waiting.delete(row.key);
        if (shown) this.#rows.set(row.key, { ...shown, gone: true });
      } else if (this.paused || (wait && !shown)) {
        this.#waiting.set(row.key, row);
      } else {
        this.#rows.set(row.key, row);
      }
    }
    cut(this.#waiting);
    if (!this.held && !this.paused) cut(this.#rows);
    this.#changed();
  }

  /** Add the waiting rows, and sort again. */
  join() {
    for (const [key, row] of this.#waiting) this.#rows.set(key, row);
    this.#waiting.clear();
    this.#order = [];
    cut(this.#rows);
    this.#changed();
  }

  /** The number of changes in the last second. */
  rate(now = Date.now()) {
    this.#recent = this.#recent.filter(([time]) => now - time < 1000);
    return this.#recent.reduce((sum, [, count]) => sum + count, 0);
  }

  /** The number of waiting rows that match the filters. */
  waiting(state, words, since) {
    return this.#waiting.size ? this.#fitting(this.#waiting.values(), state, words, since).length : 0;
  }

  /** The rows to show, in order. With *held*, or while paused, they keep their places. */
  shown(state, words, since, held = this.held) {
    const found = this.#fitting(this.#rows.values(), state, words, since);
    const sorted = found.sort(SORTS[state.sort] ?? SORTS.warnings);
    if (!(held || this.paused) || !this.#order.length) {
      this.#order = sorted.map((row) => row.key);
      return sorted;
    }
    const places = new Map(this.#order.map((key, place) => [key, place]));
    return sorted
      .map((row, place) => [places.get(row.key) ?? this.#order.length + place, row])
      .sort((a, b) => a[0] - b[0])
      .map(([, row]) => row);
  }

  get all() {
    return [...this.#rows.values()];
  }

  #fitting(rows, state, words, since) {
    const found = [];
    for (const row of rows) {
      if (row.last < since || !fitsFacets(state, row)) continue;
      if (words.every((word) => row.text.includes(word))) found.push(row);
    }
    return found;
  }
}

/** Is *row* an older state of the event than *known*, if there is one? */
const isOlder = (row, known) => Number(row.version) < Number(known?.version);

/** Drop a tenth at a time, because it needs a sort of all rows. */
function cut(rows) {
  if (rows.size <= MOST * 1.1) return;
  const oldest = [...rows.values()].sort((a, b) => a.last - b.last).slice(0, rows.size - MOST);
  for (const row of oldest) rows.delete(row.key);
}
