// @ts-check
// What is wrong in the fleet and since when: failing objects, the histogram, facets, and the list that lives.
import { html, useEffect, useLayoutEffect, useReducer, useRef, useState } from "./vendor/preact-htm.js";
import { FACETS, LOOK_BACKS, namespaceOf, periodOf } from "./address.js";
import { Behind } from "./behind.js";
import { Facets } from "./facets.js";
import { askCounts, Histogram } from "./histogram.js";
import { Failing } from "./failing.js";
import { List } from "./list.js";
import { listing } from "./listing.js";
import { Live } from "./live.js";
import { At, Connection, number, useNow } from "./parts.js";
import { Rows } from "./rows.js";
import { clock, duration, iso, seconds } from "./time.js";
import { goingOn, useVerdicts } from "./verdicts.js";

const SORTS = { warnings: "Warnings first", last: "last seen", count: "most often", first: "oldest first" };
/** How often the counts are asked for again while all is live. */
const COUNTS_MS = 15_000;

export function Overview({ state, onChange, onGo, scheme, keys, session }) {
  const [, draw] = useReducer((turn) => turn + 1, 0);
  const now = useNow();
  const rows = useRows(draw);
  const [line, setLine] = useState({ name: "listing" });
  const [listed, setListed] = useState(null);
  const [words, setWords] = useState(state.q ?? "");
  const [selected, select] = useState(""),
    [open, setOpen] = useState("");
  const [down, setDown] = useState(false),
    [more, setMore] = useState(false);
  const search = useRef(null);
  const lastS = seconds(state.last) ?? 3600;

  // One stream: what the server selects by is another when these are.
  const asked = [
    state.last,
    state.from,
    state.to,
    state.labels,
    state.fields,
    state.q,
    ...FACETS.map(({ name }) => state[name]),
  ];
  // Before the first frame, and not after it: nothing is drawn that is worth to wait for.
  useLayoutEffect(() => {
    const source = listing(state, periodOf(state, lastS), (found) => (setListed(found), rows.listed(found.events)));
    const live = new Live(source, {
      changed: (frames) => rows.take(frames),
      state: (found) => setLine({ ...found, at: Date.now() }),
    });
    return () => live.close();
  }, asked);
  useEffect(() => setWords(state.q ?? ""), [state.q]);
  const counts = useCounts(state, lastS);
  useEffect(() => {
    const scrolled = () => setDown(scrollY > 400);
    addEventListener("scroll", scrolled, { passive: true });
    return () => removeEventListener("scroll", scrolled);
  }, []);

  rows.held = Boolean(selected) || down;
  const { since } = periodOf(state, lastS, now);
  // What was asked of the server holds for what the stream brings, too.
  const typed = wordsOf(words),
    asWords = [...new Set([...wordsOf(state.q ?? ""), ...typed])];
  const shown = rows.shown(state, asWords, state.from ? 0 : since);
  const verdicts = useVerdicts(shown);
  const waiting = rows.waiting(state, asWords, state.from ? 0 : since);
  const narrowed = isNarrowed(state, asWords);
  const join = () => (select(""), setOpen(""), rows.join(), scrollTo({ top: 0 }));
  const pause = () => ((rows.paused = !rows.paused), rows.paused || rows.join(), draw());
  const zoom = (from, to) => onChange({ from: iso(from), to: iso(to) });

  keys.current = {
    "/": () => search.current?.focus(),
    j: () => select(beside(shown, selected, 1)),
    k: () => select(beside(shown, selected, -1)),
    ArrowDown: () => selected && select(beside(shown, selected, 1)),
    ArrowUp: () => selected && select(beside(shown, selected, -1)),
    Enter: () => selected && setOpen(open === selected ? "" : selected),
    o: () => {
      const row = shown.find(({ key }) => key === selected);
      if (row) onGo({ about: row.about });
    },
    Escape: () =>
      open
        ? setOpen("")
        : selected
          ? (select(""), /** @type {HTMLElement} */ (document.activeElement)?.blur())
          : state.from && onChange({ from: "", to: "" }),
    p: pause,
    n: join,
    w: () => onChange({ type: state.type === "Warning" ? "" : "Warning" }),
  };

  return html`<main id="main" class=${`overview ${more ? "all" : "few"}`}>
    <h1 class="hidden">Overview</h1>
    <${Filters} state=${state} words=${words} onWords=${setWords} onChange=${onChange} search=${search} session=${session} more=${more} onMore=${setMore} />
    <${Behind} session=${session} />
    <div class="columns">
      <${Facets} state=${state} counts=${counts.found} rows=${rows.all} onChange=${onChange} />
      <div class="wide">
        ${state.type !== "Normal" && html`<${Failing} verdicts=${verdicts} now=${now} onGo=${onGo} ready=${Boolean(listed)} period=${periodWord(state)} narrowed=${narrowed} />`}
        ${counts.found ? html`<${Histogram} counts=${counts.found} state=${state} onZoom=${zoom} scheme=${scheme} />` : html`<section class="histogram empty">${counts.error ? counts.error.message : ""}</section>`}
        <div class="listbar">
          <h2>Events</h2>
          <span class="faint">${number(shown.length)}${listed?.more ? " newest" : ""} shown</span>
          <${Reach} listed=${listed} since=${since} now=${now} counts=${counts.found} />
          <span class="grow"></span>
          <label class="sort">Order <select aria-label="Order" value=${state.sort} onChange=${(happened) => onChange({ sort: happened.target.value })}>${Object.entries(SORTS).map(([name, label]) => html`<option key=${name} value=${name}>${label}</option>`)}</select></label>
          <button type="button" aria-pressed=${rows.paused ? "true" : "false"} onClick=${pause} disabled=${line.name === "still"} title="Pause (p)">${rows.paused ? "▶ Resume" : "❚❚ Pause"}</button>
          <${Line} line=${line} rows=${rows} now=${now} />
          <span role="status" aria-live="polite" class="badge">${waiting > 0 && html`<button type="button" class="new" onClick=${join}>${number(waiting)} new</button>`}</span>
        </div>
        ${
          shown.length
            ? html`<${List} rows=${shown} now=${now} selected=${selected} open=${open} goesOn=${goingOn(verdicts ?? [])} onSelect=${select} onOpen=${setOpen} onGo=${onGo} />`
            : html`<${Nothing} listed=${listed} line=${line} state=${state} words=${typed} onChange=${onChange} />`
        }
      </div>
    </div>
  </main>`;
}

const wordsOf = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);

function useRows(draw) {
  const rows = useRef(null);
  if (!rows.current) {
    let asked = 0;
    // At most once a frame, and of a flood four times a second: nobody reads faster, and the page stays quick.
    rows.current = new Rows(() => {
      if (asked) return;
      const pause = rows.current?.rate() > 30 ? 250 : 0;
      asked = setTimeout(() => requestAnimationFrame(() => ((asked = 0), draw())), pause);
    });
  }
  return rows.current;
}

function useCounts(state, lastS) {
  const [answer, setAnswer] = useState({});
  useLayoutEffect(() => {
    const abort = new AbortController();
    const ask = async () => {
      if (document.hidden) return;
      try {
        setAnswer({ found: await askCounts(state, periodOf(state, lastS), abort.signal) });
      } catch (error) {
        if (!abort.signal.aborted) setAnswer((before) => ({ ...before, error }));
      }
    };
    ask();
    const timer = setInterval(ask, COUNTS_MS);
    return () => (abort.abort(), clearInterval(timer));
  }, [state.last, state.from, state.to, namespaceOf(state)]);
  return answer;
}

function Filters({ state, words, onWords, onChange, search, session, more, onMore }) {
  const [labels, setLabels] = useState(state.labels ?? ""),
    [fields, setFields] = useState(state.fields ?? "");
  useEffect(() => setLabels(state.labels ?? ""), [state.labels]);
  useEffect(() => setFields(state.fields ?? ""), [state.fields]);
  const ask = (happened) => {
    happened.preventDefault();
    onChange({ q: words.trim(), labels: labels.trim(), fields: fields.trim() });
  };
  const chips = FACETS.filter(({ name }) => state[name]);
  const past = periodOf(state, null);
  return html`<form class="filters" role="search" onSubmit=${ask}>
    <label class="find"><span class="hidden">Words in any field</span>
      <input type="search" ref=${search} value=${words} placeholder="Words in any field  ( / )" autocomplete="off" spellcheck="false"
        onInput=${(happened) => onWords(happened.target.value)} title="Narrows what is loaded at once; Enter asks the server" /></label>
    <label class="selector"><span class="hidden">Label selector</span>
      <input type="text" value=${labels} placeholder="Labels: app=web,tier!=db" autocomplete="off" spellcheck="false" onInput=${(happened) => setLabels(happened.target.value)} title="A label selector as kubectl's -l; Enter asks" /></label>
    <label class="selector"><span class="hidden">Field selector</span>
      <input type="text" value=${fields} placeholder="Fields: reason=BackOff" autocomplete="off" spellcheck="false" onInput=${(happened) => setFields(happened.target.value)} title="A field selector as kubectl's --field-selector; Enter asks" /></label>
    <label>Last <select aria-label="Look-back" value=${state.from ? "" : state.last} onChange=${(happened) => onChange({ last: happened.target.value, from: "", to: "" })}>
      ${state.from && html`<option value="">as zoomed</option>`}
      ${LOOK_BACKS.map((name) => html`<option key=${name} value=${name}>${name.replace("m", " min").replace("h", " h").replace("d", " d")}</option>`)}</select></label>
    ${
      session.namespaces &&
      html`<label>Namespace <select aria-label="Namespace" value=${state.namespace ?? ""} onChange=${(happened) => onChange({ namespace: happened.target.value })}>
      ${session.namespaces.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select></label>`
    }
    <button type="submit">Ask</button>
    <button type="button" class="narrow-only" aria-expanded=${more ? "true" : "false"} onClick=${() => onMore(!more)}>${more ? "Fewer filters" : "All filters"}</button>
    ${
      (chips.length > 0 || state.from || state.q) &&
      html`<span class="chips">
      ${state.from && html`<button type="button" class="chip" onClick=${() => onChange({ from: "", to: "" })} aria-label="Back from the zoom">${clock(past.since)} – ${past.until ? clock(past.until) : "now"} <span aria-hidden="true">✕</span></button>`}
      ${state.q && html`<button type="button" class="chip" onClick=${() => onChange({ q: "" })} aria-label=${`Take away the words ${state.q}`}>“${state.q}” <span aria-hidden="true">✕</span></button>`}
      ${chips.map(({ name, label }) => html`<button type="button" class="chip" key=${name} onClick=${() => onChange({ [name]: "" })} aria-label=${`Take away ${label} ${state[name]}`}>${label}: ${state[name].replace(/^!/, "not ")} <span aria-hidden="true">✕</span></button>`)}
      <button type="button" class="chip clear" onClick=${() => onChange({ from: "", to: "", q: "", labels: "", fields: "", ...Object.fromEntries(FACETS.map(({ name }) => [name, ""])) })}>clear</button>
    </span>`
    }
  </form>`;
}

/** How far back there is anything: an empty hour is no quiet hour where nothing is kept of it. */
function Reach({ listed, since, now, counts }) {
  if (!listed) return null;
  const parts = [];
  if (since < listed.begins - 60_000) parts.push(`events are kept ${duration((now - listed.begins) / 1000)}`);
  if (counts && since < counts.begins - 60_000) parts.push(`counts ${duration((now - counts.begins) / 1000)}`);
  return (
    parts.length > 0 &&
    html`<span class="reach" title="The bus' options event_ttl_s and occurrences_s">${parts.join(", ")} after they were last seen</span>`
  );
}

function Line({ line, rows, now }) {
  if (line.name === "live" && rows.paused)
    return html`<span class="line"><span aria-hidden="true">❚❚</span> paused</span>`;
  const rate = rows.rate(now);
  return html`<${Connection} line=${line} now=${now}>${rate > 0 ? `, ${rate}/s` : ""}${rate > 30 ? ": new rows wait" : ""}<//>`;
}

function Nothing({ listed, line, state, words, onChange }) {
  if (!listed) return html`<p class="nothing">${line.name === "cut" ? line.why : "Asking for events …"}</p>`;
  const narrowed = isNarrowed(state, words);
  return html`<div class="nothing"><p>${narrowed ? "No event fits all of this." : "No event in this period."} Events are kept since <${At} ms=${listed.begins} />.</p>
    ${words.length > 0 && words.join(" ") !== (state.q ?? "") && html`<p><button type="button" onClick=${() => onChange({ q: words.join(" ") })}>Ask the server for “${words.join(" ")}”</button> (Enter)</p>`}
    ${!narrowed && html`<p>Record one: <code>eventbus record Backup/nightly --reason Completed --message "42 GiB"</code></p>`}</div>`;
}

/** Is less asked for than all of the period? */
const isNarrowed = (state, words) =>
  Boolean(words.length || state.labels || state.fields || FACETS.some(({ name }) => state[name]));

function beside(shown, selected, step) {
  const place = shown.findIndex(({ key }) => key === selected);
  const next = place < 0 ? 0 : Math.min(Math.max(place + step, 0), shown.length - 1);
  return shown[next]?.key ?? "";
}

function periodWord(state) {
  const last =
    { "1h": "hour", "1d": "day" }[state.last] ?? state.last.replace("m", " min").replace("h", " h").replace("d", " d");
  return state.from ? "in this period" : `in the last ${last}`;
}
