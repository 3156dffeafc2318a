// @ts-check
// Small components that all views use.
import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { block, line, pieces } from "./text.js";
import { clock, duration, iso, utc } from "./time.js";
import { objectAddress } from "./address.js";

/** How long ago, with the local time and UTC on hover. */
export function Ago({ ms, now, suffix = "" }) {
  if (!ms) return html`<span class="faint">–</span>`;
  return html`<time datetime=${iso(ms)} title=${`${clock(ms, now)} here · ${utc(ms)}`}>${duration((now - ms) / 1000) + suffix}</time>`;
}

/** Local wall time, UTC on hover. */
export function At({ ms, now }) {
  return html`<time datetime=${iso(ms)} title=${utc(ms)}>${clock(ms, now)}</time>`;
}

/** A word, with a sign before it: never a colour alone. */
export function Type({ warning, type }) {
  return html`<span class=${`type ${warning ? "warning" : "normal"}`}>${type}</span>`;
}

/** Good, bad or unknown, as a word with a sign. */
export function State({ good, children }) {
  const sign = good === null ? "?" : good ? "✓" : "✕";
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
      // no clipboard without TLS: it is selected, for Ctrl-C
      getSelection().selectAllChildren(code.current);
      say("selected");
    }
    setTimeout(() => say(""), 1500);
  };
  return html`<span class="command"><code ref=${code}>${text}</code><button type="button" onClick=${copy} aria-label=${`Copy: ${text}`}>${said || "copy"}</button></span>`;
}

/** How the page's stream is: asking, live, cut off; *children*: said behind live. */
export function Connection({ line, now, children }) {
  if (line.name === "still") return html`<span class="line">a period that has ended</span>`;
  if (line.name === "cut")
    return html`<span class="line bad"><span aria-hidden="true">✕</span> cut off for ${duration((now - line.at) / 1000)}: ${line.why}${line.hopeless ? "" : "; trying again"}</span>`;
  if (line.name === "listing") return html`<span class="line faint">asking …</span>`;
  return html`<span class="line good"><span aria-hidden="true">●</span> live${children}</span>`;
}

/** The time, told anew every *everyMs*; a page that nobody sees stands still. */
export function useNow(everyMs = 1000) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => document.hidden || setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}

/** Something that is asked for again and again while the page is seen: {found, error, again}. */
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
