// @ts-check
// The overview: failing objects, the histogram, facets, and the live list of events.
import { html, useEffect, useLayoutEffect, useReducer, useRef, useState } from "./vendor/preact-htm.js";
import { FACETS, LOOK_BACKS, namespaceOf, periodOf } from "./address.js";
import { Facets } from "./facets.js";
import { askCounts, Histogram } from "./histogram.js";
import { Failing } from "./failing.js";
import { List } from "./list.js";
import { listing } from "./listing.js";
import { Live } from "./live.js";
import { Announced, At, Connection, number, useNow, useTicking, useViewKeys } from "./parts.js";
import { Rows } from "./rows.js";
import { clock, duration, iso, seconds } from "./time.js";
import { Troubles } from "./troubles.js";
import { goingOn, useVerdicts } from "./verdicts.js";

const SORTS = { warnings: "Warnings first", last: "last seen", count: "most often", first: "oldest first" };
/** The interval between two requests for the counts. */
const COUNTS_MS = 15_000;

export function Overview({ state, onChange, onGo, scheme, keys, session }) {
  const [, draw] = useReducer((turn) => turn + 1, 0);
  const now = useNow(10_000); // for the start of the period
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

  // The filters of the server: another list and another stream when one of them changes.
  const asked = [
    state.last,
    state.from,
    state.to,
    state.labels,
    state.fields,
    state.q,
    ...FACETS.map(({ name }) => state[name]),
  ];
  // Request before the first frame: there is nothing to draw yet.
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

  const held = Boolean(selected) || down;
  useLayoutEffect(() => {
    rows.held = held;
  }, [held]);
  const { since } = periodOf(state, lastS, now);
  // The words of the search apply to the changes of the stream as well.
  const typed = wordsOf(words),
    asWords = [...new Set([...wordsOf(state.q ?? ""), ...typed])];
  const shown = rows.shown(state, asWords, state.from ? 0 : since, held);
  const verdicts = useVerdicts(shown);
  const waiting = rows.waiting(state, asWords, state.from ? 0 : since);
  const narrowed = isNarrowed(state, asWords);
  // The bus counts every occurrence by facets; it does not know words and selectors.
  const uncounted = Boolean(asWords.length || state.labels || state.fields);
  const join = () => (select(""), setOpen(""), rows.join(), scrollTo({ top: 0 }));
  const pause = () => ((rows.paused = !rows.paused), rows.paused || rows.join(), draw());
  const zoom = (from, to) => onChange({ from: iso(from), to: iso(to) });

  useViewKeys(keys, {
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
  });

  return html`<main id="main" tabindex="-1" aria-label="Overview" class=${`overview ${more ? "all" : "few"}`}>
    <h1 class="hidden">Overview</h1>
    <${Filters} state=${state} words=${words} onWords=${setWords} onChange=${onChange} search=${search} session=${session} more=${more} onMore=${setMore} />
    <${Troubles} session=${session} />
    <div class="columns">
      <${Facets} state=${state} counts=${counts.found} rows=${rows.all} uncounted=${uncounted} onChange=${onChange} />
      <div class="wide">
        ${
          state.type !== "Normal" &&
          html`<${Failing} verdicts=${verdicts} onGo=${onGo} ready=${Boolean(listed)} period=${periodWord(state)} narrowed=${narrowed} />`
        }
        ${
          counts.found
            ? html`<${Histogram} counts=${counts.found} state=${state} uncounted=${uncounted} onZoom=${zoom} scheme=${scheme} />`
            : html`<section class="histogram empty">${counts.error ? counts.error.message : ""}</section>`
        }
        <div class="listbar">
          <h2>Events</h2>
          <span class="faint">${number(shown.length)}${listed?.more ? " newest" : ""} shown</span>
          <${Reach} listed=${listed} since=${since} now=${now} counts=${counts.found} />
          <span class="grow"></span>
          <label class="sort">Order <${Choice} label="Order" value=${state.sort} options=${SORTS} onChoose=${(sort) => onChange({ sort })} /></label>
          <button type="button" aria-pressed=${rows.paused ? "true" : "false"} onClick=${pause} disabled=${line.name === "still"} title="Pause (p)">${rows.paused ? "▶ Resume" : "❚❚ Pause"}</button>
          <${Line} line=${line} rows=${rows} /><${Announced} line=${line} />
          <span role="status" class="badge">${waiting > 0 && html`<button type="button" class="new" onClick=${join}>${number(waiting)} new</button>`}</span>
        </div>
        ${
          shown.length
            ? html`<${List} rows=${shown} selected=${selected} open=${open} goesOn=${goingOn(verdicts ?? [])} onSelect=${select} onOpen=${setOpen} onGo=${onGo} />`
            : html`<${Nothing} listed=${listed} line=${line} state=${state} words=${typed} onChange=${onChange} />`
        }
      </div>
    </div>
  </main>`;
}

/** A select; *options*: value → text. */
function Choice({ label, value, options, onChoose }) {
  return html`<select aria-label=${label} value=${value} onChange=${(event) => onChoose(event.target.value)}>
    ${Object.entries(options).map(([name, text]) => html`<option key=${name} value=${name}>${text}</option>`)}</select>`;
}

const wordsOf = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);

function useRows(draw) {
  const rows = useRef(null);
  if (!rows.current) {
    let asked = 0;
    // Draw at most once a frame, and four times a second in a flood, so that the page stays responsive.
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

/** The form of filters. What the user types narrows the loaded rows at once; submitting searches the server. */
function Filters({ state, words, onWords, onChange, search, session, more, onMore }) {
  const [labels, setLabels] = useState(state.labels ?? ""),
    [fields, setFields] = useState(state.fields ?? "");
  useEffect(() => setLabels(state.labels ?? ""), [state.labels]);
  useEffect(() => setFields(state.fields ?? ""), [state.fields]);
  const submit = (event) => {
    event.preventDefault();
    onChange({ q: words.trim(), labels: labels.trim(), fields: fields.trim() });
  };
  const lookBacks = Object.fromEntries([
    ...(state.from ? [["", "as zoomed"]] : []),
    ...LOOK_BACKS.map((name) => [name, periodText(name)]),
  ]);
  const namespaces = Object.fromEntries((session.namespaces ?? []).map((name) => [name, name]));
  return html`<form class="filters" role="search" onSubmit=${submit}>
    <label class="find"><span class="hidden">Words in any field</span>
      <input type="search" ref=${search} value=${words} placeholder="Words in any field  ( / )" autocomplete="off" spellcheck="false"
        onInput=${(event) => onWords(event.target.value)} title="Filters the loaded events at once; Enter searches the server" /></label>
    <${Selector} label="Label selector" value=${labels} placeholder="Labels: app=web,tier!=db" onInput=${setLabels} title="A label selector as kubectl's -l; Enter searches" />
    <${Selector} label="Field selector" value=${fields} placeholder="Fields: reason=BackOff" onInput=${setFields} title="A field selector as kubectl's --field-selector; Enter searches" />
    <label>Last <${Choice} label="Look-back" value=${state.from ? "" : state.last} options=${lookBacks} onChoose=${(last) => onChange({ last, from: "", to: "" })} /></label>
    ${
      session.namespaces &&
      html`<label>Namespace <${Choice} label="Namespace" value=${state.namespace ?? ""} options=${namespaces} onChoose=${(namespace) => onChange({ namespace })} /></label>`
    }
    <button type="submit">Search</button>
    <button type="button" class="narrow-only" aria-expanded=${more ? "true" : "false"} onClick=${() => onMore(!more)}>${more ? "Fewer filters" : "All filters"}</button>
    <${Chips} state=${state} onChange=${onChange} />
  </form>`;
}

function Selector({ label, value, placeholder, onInput, title }) {
  return html`<label class="selector"><span class="hidden">${label}</span>
    <input type="text" value=${value} placeholder=${placeholder} autocomplete="off" spellcheck="false" onInput=${(event) => onInput(event.target.value)} title=${title} /></label>`;
}

/** A button for each filter that is set; it removes the filter. */
function Chips({ state, onChange }) {
  const { since, until } = periodOf(state, null);
  const facets = FACETS.filter(({ name }) => state[name]);
  if (!facets.length && !state.from && !state.q) return null;
  const chip = (key, label, text, changes) =>
    html`<button type="button" class="chip" key=${key} onClick=${() => onChange(changes)} aria-label=${label}>${text} <span aria-hidden="true">✕</span></button>`;
  const nothing = {
    from: "",
    to: "",
    q: "",
    labels: "",
    fields: "",
    ...Object.fromEntries(FACETS.map(({ name }) => [name, ""])),
  };
  return html`<span class="chips">
    ${state.from && chip("zoom", "Back from the zoom", `${clock(since)} – ${until ? clock(until) : "now"}`, { from: "", to: "" })}
    ${state.q && chip("words", `Remove the words ${state.q}`, `“${state.q}”`, { q: "" })}
    ${facets.map(({ name, label }) => chip(name, `Remove ${label} ${state[name]}`, `${label}: ${state[name].replace(/^!/, "not ")}`, { [name]: "" }))}
    <button type="button" class="chip clear" onClick=${() => onChange(nothing)}>clear</button>
  </span>`;
}

/** States how far back events are kept: an empty hour before that was not a quiet one. */
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

function Line({ line, rows }) {
  const rate = useTicking(() => rows.rate());
  if (line.name === "live" && rows.paused)
    return html`<span class="line"><span aria-hidden="true">❚❚</span> paused</span>`;
  return html`<${Connection} line=${line}>${rate > 0 ? `, ${rate}/s` : ""}${rate > 30 ? ": new rows wait" : ""}<//>`;
}

function Nothing({ listed, line, state, words, onChange }) {
  if (!listed) return html`<p class="nothing">${line.name === "cut" ? line.why : "Loading …"}</p>`;
  const narrowed = isNarrowed(state, words);
  return html`<div class="nothing"><p>${narrowed ? "No event matches all filters." : "No event in this period."} Events are kept since <${At} ms=${listed.begins} />.</p>
    ${words.length > 0 && words.join(" ") !== (state.q ?? "") && html`<p><button type="button" onClick=${() => onChange({ q: words.join(" ") })}>Search the server for “${words.join(" ")}”</button> (Enter)</p>`}
    ${!narrowed && html`<p>Record one: <code>eventbus record Backup/nightly --reason Completed --message "42 GiB"</code></p>`}</div>`;
}

/** Do filters or words leave out events of the period? */
const isNarrowed = (state, words) =>
  Boolean(words.length || state.labels || state.fields || FACETS.some(({ name }) => state[name]));

function beside(shown, selected, step) {
  const place = shown.findIndex(({ key }) => key === selected);
  const next = place < 0 ? 0 : Math.min(Math.max(place + step, 0), shown.length - 1);
  return shown[next]?.key ?? "";
}

const periodText = (name) => name.replace("m", " min").replace("h", " h").replace("d", " d");

function periodWord(state) {
  const last = { "1h": "hour", "1d": "day" }[state.last] ?? periodText(state.last);
  return state.from ? "in this period" : `in the last ${last}`;
}
