// @ts-check
// The words that occur, with how often: a click keeps one, a second takes it back, Alt-click leaves it out.
import { html, useState } from "./vendor/preact-htm.js";
import { FACETS, fitsFacets } from "./address.js";
import { number } from "./parts.js";
import { line } from "./text.js";

const SHORT = 8,
  LONG = 60;

/**
 * How often each word of a facet occurs among what fits all others: [[word, count]], the most first. Counted are the
 * occurrences of the period; of what the bus does not count, as what others have written, the rows that are there.
 */
function wordsOf(facet, state, counts, rows) {
  const counted = new Map(),
    listed = new Map();
  const add = (found, word, count) => found.set(word, (found.get(word) ?? 0) + count);
  for (const row of counts?.rows ?? []) {
    if (fitsFacets(state, row, facet.name)) add(counted, row[facet.name], row.count);
  }
  for (const row of rows) if (fitsFacets(state, row, facet.name)) add(listed, row[facet.name], row.count);
  const found = new Map(counted);
  for (const [word, count] of listed) if (!found.has(word)) found.set(word, count);
  const chosen = (state[facet.name] ?? "").replace(/^!/, "");
  if (chosen && !found.has(chosen)) found.set(chosen, 0);
  return [...found].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
}

export function Facets({ state, counts, rows, onChange }) {
  return html`<nav class="facets" aria-label="Facets">
    ${FACETS.map((facet) => html`<${Facet} key=${facet.name} facet=${facet} state=${state} words=${wordsOf(facet, state, counts, rows)} onChange=${onChange} />`)}
  </nav>`;
}

function Facet({ facet, state, words, onChange }) {
  const [all, setAll] = useState(false);
  const value = state[facet.name] ?? "";
  const most = Math.max(1, ...words.map(([, count]) => count));
  const choose = (word, out) =>
    onChange({ [facet.name]: value === (out ? `!${word}` : word) ? "" : out ? `!${word}` : word });
  return html`<section class="facet" aria-labelledby=${`facet-${facet.name}`}>
    <h2 id=${`facet-${facet.name}`}>${facet.label}</h2>
    ${!words.length && html`<p class="faint">nothing</p>`}
    <ul>
      ${words.slice(0, all ? LONG : SHORT).map(([word, count]) => {
        const on = value === word && word,
          out = value === `!${word}`;
        if (!word)
          return html`<li key="-"><span class="word other" title="200 combinations of these words are told apart in a minute; what came after them is counted together"><span class="text">(not told apart)</span><span class="number">${number(count)}</span></span></li>`;
        return html`<li key=${word}>
          <button type="button" class=${`word${on ? " on" : ""}${out ? " out" : ""}`} aria-pressed=${on || out ? "true" : "false"}
            title=${`${line(word)}: click to keep, Alt-click (Alt-Enter) to leave out`}
            onClick=${(happened) => choose(word, happened.altKey)}
            onKeyDown=${(happened) => happened.key === "Enter" && happened.altKey && (happened.preventDefault(), choose(word, true))}>
            <meter class="amount" min="0" max=${most} value=${count} aria-hidden="true"></meter>
            <span class="text">${out && html`<b>not </b>`}${line(word)}</span><span class="number">${number(count)}</span>
          </button>
        </li>`;
      })}
    </ul>
    ${words.length > SHORT && html`<button type="button" class="more" onClick=${() => setAll(!all)}>${all ? "fewer" : `${words.length - SHORT} more`}</button>`}
  </section>`;
}
