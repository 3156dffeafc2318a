// @ts-check
// What the keys do, in a dialog.
import { html, useEffect, useRef } from "./vendor/preact-htm.js";

const KEYS = [
  ["/", "type words to find"],
  ["Enter", "in a filter: ask the server; in the list: open or close the event"],
  ["j, k", "next and previous event"],
  ["o", "the whole story of the event's object"],
  ["Esc", "close, let go, zoom out, go back"],
  ["w", "Warnings alone, or all"],
  ["p", "pause, go on"],
  ["n", "show what is new"],
  ["1, 2", "overview, health"],
  ["t", "dark, light, as the system"],
  ["?", "this"],
];

export function Help({ onClose }) {
  const dialog = useRef(null);
  useEffect(() => dialog.current.showModal(), []);
  return html`<dialog ref=${dialog} class="help" aria-labelledby="help" onClose=${onClose}>
    <h2 id="help">Keys</h2>
    <dl>${KEYS.map(([key, what]) => html`<div key=${key}><dt>${key.split(", ").map((one) => html`<kbd>${one}</kbd> `)}</dt><dd>${what}</dd></div>`)}</dl>
    <p class="faint">A click on a facet keeps it, Alt-click leaves it out. All that is chosen stands in the address: send it on.</p>
    <form method="dialog"><button type="submit">Close</button></form>
  </dialog>`;
}
