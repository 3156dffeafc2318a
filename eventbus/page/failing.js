// @ts-check
// The answer before the question: which object fails, with what, since when, how often, and does it still?
import { html, useState } from "./vendor/preact-htm.js";
import { Ago, At, number, ObjectLink, State } from "./parts.js";
import { line } from "./text.js";
import { MOST } from "./verdicts.js";

const SHORT = 6;
const WORDS = {
  "goes-on": () => html`<${State} good=${false}>goes on<//>`,
  stopped: ({ endedBy }) =>
    html`<${State} good=${true}>recovered<//> <span class="faint">${line(endedBy || "no Warning")} since</span>`,
  once: () => html`<${State} good=${null}>once so far<//>`,
};

/** The answer to: does it still? */
export const Still = ({ verdict }) => WORDS[verdict.still]?.(verdict) ?? null;

/** The worst first, with how often, where the number beside it is of several. */
function reasonsOf({ reasons: [worst, ...others], times }) {
  return [others.length ? `${line(worst)} ×${number(times)}` : line(worst), ...others.slice(0, 2).map(line)].join(", ");
}

export function Failing({ verdicts, now, onGo, ready, period, narrowed }) {
  const [all, setAll] = useState(false);
  const failing = verdicts ?? [];
  if (!failing.length) {
    return html`<section class="failing none" aria-labelledby="failing"><h2 id="failing">Failing</h2>
      ${ready && verdicts ? html`<${State} good=${true}>no Warning ${narrowed ? "fits all of this" : period}<//>` : html`<span class="faint">asking …</span>`}</section>`;
  }
  const on = failing.filter((one) => one.on).length;
  return html`<section class="failing" aria-labelledby="failing">
    <div class="caption"><h2 id="failing">Failing</h2><span class="faint">${on ? `${number(on)} still` : "none any more"}; ${failing.length < MOST ? "" : "at least "}${number(failing.length)} ${failing.length === 1 ? "object has" : "objects have"} had Warnings ${period}</span></div>
    <table role="table" aria-labelledby="failing">
      <thead role="rowgroup"><tr role="row">${["Object", "What", "How often", "Since", "Last", "Still?"].map((name) => html`<th role="columnheader" scope="col" key=${name}>${name}</th>`)}</tr></thead>
      <tbody role="rowgroup">
        ${failing.slice(0, all ? MOST : SHORT).map(
          (one) => html`<tr role="row" key=${one.key}>
          <td role="cell" class="object-cell"><${ObjectLink} about=${one.object} onGo=${onGo} />${one.place !== "default" && html` <span class="faint">${line(one.place)}</span>`}</td>
          <td role="cell" class="what" title=${line(one.message)}><b>${reasonsOf(one)}</b> ${line(one.message)}</td>
          <td role="cell" class="number">×${number(one.total)}</td>
          <td role="cell"><${At} ms=${one.since} now=${now} /></td>
          <td role="cell"><${Ago} ms=${one.last} now=${now} suffix=" ago" /></td>
          <td role="cell" class="still"><${Still} verdict=${one} /></td>
        </tr>`,
        )}
      </tbody>
    </table>
    ${failing.length > SHORT && html`<button type="button" class="more" onClick=${() => setAll(!all)}>${all ? "fewer" : `${failing.length - SHORT} more`}</button>`}
  </section>`;
}
