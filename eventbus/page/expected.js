// @ts-check
// The events that the notifier's rules expect: when they arrived, when they are due, and which are missing.
import { html } from "./vendor/preact-htm.js";
import { Ago, At, Card, number, ObjectLink, State, Table } from "./parts.js";
import { line } from "./text.js";
import { parse } from "./time.js";

const GOOD = { Arrived: true, Missing: false };
const SHOWN = 3;

/** {about, text} if events are missing. */
export function expectedTroubles({ items = [] }) {
  const names = items.filter(({ state }) => state === "Missing").map(({ name }) => line(name));
  if (!names.length) return [];
  return [
    {
      about: names.length === 1 ? "1 expected event is missing" : `${number(names.length)} expected events are missing`,
      text: names.slice(0, SHOWN).join(", ") + (names.length > SHOWN ? ", …" : ""),
    },
  ];
}

/** The card of the view Health; without expected events there is none. */
export function Expected({ expected, onGo }) {
  const items = expected.items ?? [];
  if (!items.length) return null;
  const rank = ({ state }) => (state === "Missing" ? 0 : 1);
  const sorted = [...items].sort((a, b) => rank(a) - rank(b));
  const rows = sorted.map(({ name, object, state, last, next, missingSince }) => ({
    key: `${name} ${object.namespace}`,
    cells: [
      line(name),
      html`<${ObjectLink} about=${object} onGo=${onGo} />`,
      html`<${State} good=${GOOD[state] ?? null}>${line(state)}<//>${missingSince && html` <span class="faint"><${Ago} ms=${parse(missingSince)} /></span>`}`,
      last ? html`<${Ago} ms=${parse(last)} suffix=" ago" />` : html`<span class="faint">never</span>`,
      html`<${At} ms=${parse(next)} />`,
    ],
  }));
  return html`<${Card} id="expected" title="Expected events" note=${number(items.length)}>
    <${Table} label="expected" columns=${["Name", "Object", "State", "Last arrival", "Next due"]} rows=${rows} /><//>`;
}
