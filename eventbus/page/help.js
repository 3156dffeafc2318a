// @ts-check
// The dialog that lists the keys, and switches those of a single letter off.
import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";

const KEYS = [
  ["/", "type words to find"],
  ["Enter", "in a filter: search; in the list: open or close the event"],
  ["j, k", "next and previous event"],
  ["o", "the story of the event's object"],
  ["Esc", "close, clear the selection, zoom out, go back"],
  ["w", "Warnings only, or all"],
  ["p", "pause or resume"],
  ["n", "show new events"],
  ["1, 2, 3", "overview, health, notifications"],
  ["t", "colors: dark, light, as the system"],
  ["?", "this list"],
];
const STORED = "shortcuts";

/** Are the keys of a single character switched on? Speech input types such characters without meaning them. */
export const hasShortcuts = () => localStorage.getItem(STORED) !== "off";

export function Help({ onClose }) {
  const dialog = useRef(null);
  const [on, setOn] = useState(hasShortcuts());
  useEffect(() => dialog.current.showModal(), []);
  const change = (event) => {
    localStorage.setItem(STORED, event.target.checked ? "on" : "off");
    setOn(event.target.checked);
  };
  return html`<dialog ref=${dialog} class="help" aria-labelledby="help" onClose=${onClose}>
    <h2 id="help">Keys</h2>
    <dl>${KEYS.map(([keys, action]) => html`<div key=${keys}><dt>${keys.split(", ").map((key) => html`<kbd>${key}</kbd> `)}</dt><dd>${action}</dd></div>`)}</dl>
    <p><label><input type="checkbox" checked=${on} onChange=${change} /> Keys of a single character</label></p>
    <p class="faint">A click on a facet keeps it; the button beside it excludes it. The address holds all filters: send it as a link.</p>
    <form method="dialog"><button type="submit">Close</button></form>
  </dialog>`;
}
