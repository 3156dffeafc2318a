// @ts-check
// The objects that fail: with which reason, since when, how often, and whether they still fail.
import { html, useState } from "./vendor/preact-htm.js";
import { Ago, At, number, ObjectLink, State } from "./parts.js";
import { essence, line } from "./text.js";
import { MOST } from "./verdicts.js";

const SHORT = 6;
const COLUMNS = ["Object", "Problem", "How often", "Since", "Last", "State"];
const WORDS = {
  "goes-on": () => html`<${State} good=${false}>still failing<//>`,
  stopped: ({ endedBy }) =>
    html`<${State} good=${true}>recovered<//> <span class="faint">${line(endedBy || "no Warning")} since</span>`,
  once: () => html`<${State} good=${null}>once so far<//>`,
};

/** The worst reason first, with its count if there are several. */
function reasonsOf({ reasons: [worst, ...others], times }) {
  return [others.length ? `${line(worst)} ×${number(times)}` : line(worst), ...others.slice(0, 2).map(line)].join(", ");
}

export function Failing({ verdicts, onGo, ready, period, narrowed }) {
  const [all, setAll] = useState(false);
  const failing = verdicts ?? [];
  if (!failing.length) {
    const nothing = narrowed ? "no Warning matches all filters" : `no Warning ${period}`;
    return html`<section class="failing none" aria-labelledby="failing"><h2 id="failing">Failing</h2>
      ${ready && verdicts ? html`<${State} good=${true}>${nothing}<//>` : html`<span class="faint">loading …</span>`}</section>`;
  }
  const ongoing = failing.filter(({ on }) => on).length;
  const objects = `${failing.length < MOST ? "" : "at least "}${number(failing.length)} ${failing.length === 1 ? "object" : "objects"}`;
  return html`<section class="failing" aria-labelledby="failing">
    <div class="caption"><h2 id="failing">Failing</h2>
      <span class="faint">${objects} had Warnings ${period}; ${ongoing ? `${number(ongoing)} still failing` : "none is failing now"}</span></div>
    <table role="table" aria-labelledby="failing">
      <thead role="rowgroup"><tr role="row">${COLUMNS.map((name) => html`<th role="columnheader" scope="col" key=${name}>${name}</th>`)}</tr></thead>
      <tbody role="rowgroup">
        ${failing.slice(0, all ? MOST : SHORT).map((verdict) => html`<${FailingRow} key=${verdict.key} verdict=${verdict} onGo=${onGo} />`)}
      </tbody>
    </table>
    ${failing.length > SHORT && html`<button type="button" class="more" onClick=${() => setAll(!all)}>${all ? "fewer" : `${failing.length - SHORT} more`}</button>`}
  </section>`;
}

function FailingRow({ verdict, onGo }) {
  const { object, place, message, total, since, last } = verdict;
  return html`<tr role="row">
    <td role="cell" class="object-cell"><${ObjectLink} about=${object} onGo=${onGo} />${place !== "default" && html` <span class="faint">${line(place)}</span>`}</td>
    <td role="cell" class="problem" title=${line(message)}><b>${reasonsOf(verdict)}</b> <span class="text">${essence(message)}</span></td>
    <td role="cell" class="number">×${number(total)}</td>
    <td role="cell"><${At} ms=${since} /></td>
    <td role="cell"><${Ago} ms=${last} suffix=" ago" /></td>
    <td role="cell" class="still">${WORDS[verdict.still]?.(verdict)}</td>
  </tr>`;
}
