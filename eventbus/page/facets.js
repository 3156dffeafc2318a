// @ts-check
// The values of each facet with their counts: a click keeps one value, a second click shows all again; "not" excludes it.
import { html, useState } from "./vendor/preact-htm.js";
import { FACETS, fitsFacets } from "./address.js";
import { number } from "./parts.js";
import { line } from "./text.js";

const SHORT = 8,
  LONG = 60;
const TOO_MANY = "The bus counts 200 combinations of these values a minute; later ones are counted together.";

/**
 * The values of a facet among the events that match all other facets: [[value, count]], the most frequent first. Counts are
 * occurrences in the period. Events written by other programs are not counted by the bus; for these, loaded rows are counted.
 */
function valuesOf(facet, state, counts, rows) {
  const counted = new Map(),
    listed = new Map();
  const add = (sums, value, count) => sums.set(value, (sums.get(value) ?? 0) + count);
  for (const row of counts?.rows ?? []) {
    if (fitsFacets(state, row, facet.name)) add(counted, row[facet.name], row.count);
  }
  for (const row of rows) if (fitsFacets(state, row, facet.name)) add(listed, row[facet.name], row.count);
  const values = new Map(counted);
  for (const [value, count] of listed) if (!values.has(value)) values.set(value, count);
  const chosen = (state[facet.name] ?? "").replace(/^!/, "");
  if (chosen && !values.has(chosen)) values.set(chosen, 0);
  return [...values].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
}

/** *uncounted*: words or selectors are set, which the counts do not know. */
export function Facets({ state, counts, rows, uncounted, onChange }) {
  return html`<nav class="facets" aria-label="Facets">
    ${uncounted && html`<p class="uncounted">Counts are not filtered by words or selectors.</p>`}
    ${FACETS.map((facet) => html`<${Facet} key=${facet.name} facet=${facet} state=${state} values=${valuesOf(facet, state, counts, rows)} onChange=${onChange} />`)}
  </nav>`;
}

function Facet({ facet, state, values, onChange }) {
  const [all, setAll] = useState(false);
  const chosen = state[facet.name] ?? "";
  const most = Math.max(1, ...values.map(([, count]) => count));
  const choose = (choice) => onChange({ [facet.name]: chosen === choice ? "" : choice });
  return html`<section class="facet" aria-labelledby=${`facet-${facet.name}`}>
    <h2 id=${`facet-${facet.name}`}>${facet.label}</h2>
    ${!values.length && html`<p class="faint">none</p>`}
    <ul>${values
      .slice(0, all ? LONG : SHORT)
      .map(([value, count]) =>
        value
          ? html`<${Value} key=${value} value=${value} count=${count} most=${most} chosen=${chosen} onChoose=${choose} />`
          : html`<li key="-"><span class="word other" title=${TOO_MANY}><span class="text">(others)</span><span class="number">${number(count)}</span></span></li>`,
      )}</ul>
    ${values.length > SHORT && html`<button type="button" class="more" onClick=${() => setAll(!all)}>${all ? "fewer" : `${values.length - SHORT} more`}</button>`}
  </section>`;
}

function Value({ value, count, most, chosen, onChoose }) {
  const kept = chosen === value,
    excluded = chosen === `!${value}`;
  return html`<li class="value">
    <button type="button" class=${`word${kept ? " on" : ""}${excluded ? " out" : ""}`} aria-pressed=${kept ? "true" : "false"} title=${line(value)}
      onClick=${() => onChoose(excluded ? `!${value}` : value)}>
      <meter class="amount" min="0" max=${most} value=${count} aria-hidden="true"></meter>
      <span class="text">${excluded && html`<b>not </b>`}${line(value)}</span><span class="number">${number(count)}</span>
    </button>
    <button type="button" class="exclude" aria-pressed=${excluded ? "true" : "false"} aria-label=${`Exclude ${line(value)}`} title=${`Exclude ${line(value)}`}
      onClick=${() => onChoose(`!${value}`)}>not</button>
  </li>`;
}
