// @ts-check
// Small components that all views use.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact-htm.js";
import { block, line, pieces } from "./text.js";
import { clock, duration, iso, utc } from "./time.js";
import { objectAddress } from "./address.js";

/** A section with a title: its *children*, or why there are none. */
export function Card({ id, title, note, missing, empty, children }) {
  return html`<section class="card" id=${`${id}-card`} aria-labelledby=${id}>
    <div class="caption"><h2 id=${id}>${title}</h2>${note && html`<span class="faint">${note}</span>`}</div>
    ${missing ? html`<p class="faint">${missing}</p>` : empty ? html`<p class="faint">${empty}</p>` : children}</section>`;
}

/**
 * A table; on a narrow screen each row becomes a list of its cells with their column names.
 *
 * *columns*: a # before a name aligns numbers. *rows*: {key, cells, after}; *after* is a row of its own below.
 */
export function Table({ label, columns, rows }) {
  const names = columns.map((name) => name.replace("#", ""));
  const kind = (at) => (columns[at].startsWith("#") ? "number" : "");
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${`${label}, table`}><table class="stacked" aria-labelledby=${label}>
    <thead><tr>${names.map((name, at) => html`<th scope="col" key=${name} class=${kind(at)}>${name}</th>`)}</tr></thead>
    <tbody>${rows.map(({ key, cells: [head, ...cells], after }) => [
      html`<tr key=${key}><th scope="row">${head}</th>${cells.map(
        (cell, at) => html`<td class=${kind(at + 1)} data-name=${names[at + 1]}><span>${cell}</span></td>`,
      )}</tr>`,
      after && html`<tr key=${`${key} after`}><td colspan=${columns.length}>${after}</td></tr>`,
    ])}</tbody></table></div>`;
}

/** How long ago, updated each second by itself; local time and UTC on hover. */
export function Ago({ ms, suffix = "" }) {
  const age = useTicking(() => duration((Date.now() - ms) / 1000));
  if (!ms) return html`<span class="faint">–</span>`;
  return html`<time datetime=${iso(ms)} title=${`${clock(ms)} here · ${utc(ms)}`}>${age + suffix}</time>`;
}

/** Local wall time, UTC on hover. */
export function At({ ms }) {
  return html`<time datetime=${iso(ms)} title=${utc(ms)}>${clock(ms)}</time>`;
}

/** A word with a sign before it: color alone would not be enough. */
export function Type({ warning, type }) {
  return html`<span class=${`type ${warning ? "warning" : "normal"}`}>${type}</span>`;
}

/** Good, bad or unknown, as a word with a sign. */
export function State({ good, sign = good === null ? "?" : good ? "✓" : "✕", children }) {
  return html`<span class=${`state ${good === null ? "unknown" : good ? "good" : "bad"}`}><span aria-hidden="true">${sign}</span> ${children}</span>`;
}

/** A link inside the page. */
export function Go({ to, onGo, children, ...rest }) {
  const follow = (happened) => {
    if (happened.ctrlKey || happened.metaKey || happened.shiftKey || happened.button) return;
    happened.preventDefault();
    happened.stopPropagation();
    onGo(to);
  };
  return html`<a href=${`/page/${to.startsWith("?") ? to : ""}`} onClick=${follow} ...${rest}>${children}</a>`;
}

export function ObjectLink({ about, onGo }) {
  const kind = line(about.kind),
    name = line(about.name);
  return html`<${Go} to=${objectAddress(about)} onGo=${onGo} class="object" title=${`${kind}/${name}`}><span class="kind">${kind}/</span>${name}<//>`;
}

/** The text of an event: text nodes, and links where it names http(s) addresses. */
export function Message({ text }) {
  return html`${pieces(block(text)).map((piece) =>
    typeof piece === "string"
      ? piece
      : html`<a href=${piece.href} target="_blank" rel="noopener noreferrer nofollow">${piece.href}</a>`,
  )}`;
}

/** A command, and a button that copies it. */
export function Command({ text }) {
  const [said, say] = useState("");
  const code = useRef(null);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      say("copied");
    } catch {
      // Without TLS there is no clipboard: select the text for Ctrl-C.
      getSelection().selectAllChildren(code.current);
      say("selected");
    }
    setTimeout(() => say(""), 1500);
  };
  return html`<span class="command"><code ref=${code}>${text}</code><button type="button" onClick=${copy} aria-label=${`Copy: ${text}`}>${said || "copy"}</button></span>`;
}

/** The state of the page's stream: loading, live, cut off; *children* follow the word "live". */
export function Connection({ line, children }) {
  if (line.name === "still") return html`<span class="line">a period that has ended</span>`;
  if (line.name === "cut")
    return html`<span class="line bad"><span aria-hidden="true">✕</span> cut off for <${Ago} ms=${line.at} />: ${line.why}${line.hopeless ? "" : "; trying again"}</span>`;
  if (line.name === "listing") return html`<span class="line faint">loading …</span>`;
  return html`<span class="line good"><span aria-hidden="true">●</span> live${children}</span>`;
}

/** Announces to screen readers that the stream was cut off, and that it is live again. */
export function Announced({ line }) {
  const wasCut = useRef(false);
  useEffect(() => {
    if (line.name === "cut" || line.name === "live") wasCut.current = line.name === "cut";
  }, [line.name]);
  const text =
    line.name === "cut" ? `Cut off: ${line.why}` : line.name === "live" && wasCut.current ? "Live again" : "";
  return html`<span role="status" class="hidden connection">${text}</span>`;
}

/** One timer for all parts that show a time; it rests while the page is hidden. */
const ticking = new Set();
setInterval(() => document.hidden || ticking.forEach((update) => update()), 1000);

/** The value of *make*, made again each second. The component is drawn again only if the value changes. */
export function useTicking(make) {
  const latest = useRef(make);
  const [, setShown] = useState(make);
  useLayoutEffect(() => {
    latest.current = make;
  });
  useEffect(() => {
    const update = () => setShown(latest.current());
    ticking.add(update);
    return () => ticking.delete(update);
  }, []);
  return make();
}

/** The time, in steps of *everyMs*. */
export const useNow = (everyMs) => useTicking(() => Math.floor(Date.now() / everyMs) * everyMs);

/** Set the keys of the view that is shown, after it is drawn. */
export function useViewKeys(keys, actions) {
  useLayoutEffect(() => {
    keys.current = actions;
  });
}

/** The answer of *ask*, refreshed every *everyMs* while the page is visible: {found, error, again}. */
export function usePolled(ask, everyMs, inputs) {
  const [answer, setAnswer] = useState({});
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const abort = new AbortController();
    let timer;
    const round = async () => {
      if (!document.hidden) {
        try {
          const found = await ask(abort.signal);
          setAnswer({ found, at: Date.now() });
        } catch (error) {
          if (abort.signal.aborted) return;
          setAnswer((before) => ({ ...before, error }));
        }
      }
      if (!abort.signal.aborted) timer = setTimeout(round, everyMs);
    };
    round();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [...inputs, turn]);
  return { ...answer, again: () => setTurn(turn + 1) };
}

const NUMBER = new Intl.NumberFormat();
export const number = (count) => NUMBER.format(count);
