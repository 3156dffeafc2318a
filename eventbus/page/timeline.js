// @ts-check
// The timeline: a bar from the first to the last occurrence of each event, restarts, and silences.
import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { clock, duration, utc } from "./time.js";

const LANE = 22,
  TOP = 22,
  LABEL = 300,
  COUNT = 64;
/** For the words of silences. */
const BELOW = 16;
const TICKS = 6;
/** Most lanes drawn; the table below has all. */
const MOST = 40;
/** A silence is shown from this share of the whole on. */
const GAP = 0.08;
const RESTARTS = /^(Start|Restart|BackOff|Kill|Exit|Complete|Fail|Reboot|NodeReady|NodeNotReady)/;

export function Timeline({ rows, warning, now }) {
  const place = useRef(null);
  const [width, setWidth] = useState(900);
  useEffect(() => {
    const resized = new ResizeObserver(([entry]) => setWidth(Math.max(280, Math.floor(entry.contentRect.width))));
    resized.observe(place.current);
    return () => resized.disconnect();
  }, []);
  const lanes = rows.slice(0, MOST);
  const label = Math.min(LABEL, Math.floor(width * 0.34));
  const from = Math.min(...rows.map((row) => row.first));
  const to = Math.max(now, from + 60_000, ...rows.map((row) => row.last)); // clocks of programs differ
  const span = to - from;
  const left = label + 6,
    right = width - COUNT;
  const x = (ms) => left + ((ms - from) / span) * (right - left);
  const height = TOP + lanes.length * LANE + BELOW;
  const most = Math.max(1, Math.min(TICKS, Math.floor((right - left) / 90)));
  const ticks = Array.from({ length: most }, (_, at) => from + (span * (at + 0.5)) / most);
  return html`<div class="timeline" ref=${place}>
    <svg width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} role="img" aria-label=${`Timeline of ${rows.length} events over ${duration(span / 1000)}; the table below says the same`}>
      ${ticks.map((ms) => html`<g key=${ms}><line class="grid" x1=${x(ms)} x2=${x(ms)} y1=${TOP - 4} y2=${height} /><text class="tick" x=${x(ms)} y="12" text-anchor="middle">${clock(ms, now)}</text></g>`)}
      ${gapsOf(rows, from, to).map(([start, end]) => html`<g key=${start}><rect class="gap" x=${x(start)} y=${TOP} width=${Math.max(1, x(end) - x(start))} height=${height - TOP} /><text class="gap-word" x=${(x(start) + x(end)) / 2} y=${height - 4} text-anchor="middle">${x(end) - x(start) > 70 ? `silent ${duration((end - start) / 1000)}` : ""}</text></g>`)}
      ${warning && html`<line class="first-warning" x1=${x(warning)} x2=${x(warning)} y1=${TOP - 6} y2=${height} />`}
      ${lanes.map((row, at) => html`<${Lane} key=${row.key} row=${row} y=${TOP + at * LANE} x=${x} label=${label} right=${right} now=${now} />`)}
    </svg>
    ${rows.length > MOST && html`<p class="faint">${rows.length - MOST} more events stand in the table below.</p>`}
  </div>`;
}

function Lane({ row, y, x, label, right, now }) {
  const middle = y + LANE / 2;
  const place = (ms) => Math.min(x(Math.min(Math.max(ms, row.first), row.last)), right - 3);
  const name = row.lane ?? row.reason;
  const most = Math.floor((label - 16) / (row.warning ? 7.6 : 6.6));
  const short = (text, chars) => (text.length > chars ? `${text.slice(0, Math.max(1, chars - 1))}…` : text);
  const rest = most - name.length - 2;
  const { silences = [], minutes = [], own = false } = row.rhythm ?? {};
  const bars = barsOf(row, silences);
  const restarts =
    RESTARTS.test(row.reason) && row.count > 1 ? (own ? minutes : [{ at: row.first }, { at: row.last }]) : [];
  return html`<g class=${row.warning ? "lane warns" : "lane"}>
    <title>${`${row.type} ${row.reason} ${row.kind}/${row.name}: ${row.message}\n${clock(row.first, now)} – ${clock(row.last, now)} (${utc(row.last)})`}</title>
    <text class="lane-name" x="0" y=${middle + 4}><tspan class="sign">${row.warning ? "▲ " : "· "}</tspan>${short(name, most)}${rest > 6 && html`<tspan class="told" dx="8">${short(row.message, rest)}</tspan>`}</text>
    <line class="rail" x1=${label + 6} x2=${right} y1=${middle} y2=${middle} />
    ${bars.map(([since, until]) => html`<rect key=${since} class="bar" x=${place(since)} y=${middle - 5} width=${Math.max(3, place(until) - place(since))} height="10" rx="2" />`)}
    ${silences.map(([since, until]) => html`<g key=${since} class="silence"><title>${`silent ${duration((until - since) / 1000)}: ${clock(since, now)} – ${clock(until, now)}`}</title><line x1=${place(since)} x2=${place(until)} y1=${middle} y2=${middle} /></g>`)}
    ${restarts.map(({ at, count }) => html`<g key=${at}><title>${`${clock(at, now)}${count ? `: ${count} in this minute` : ""}`}</title><line class="restart" x1=${place(at)} x2=${place(at)} y1=${middle - 8} y2=${middle + 8} /></g>`)}
    <text class="lane-count" x=${right + 8} y=${middle + 4}>${row.count > 1 ? `×${row.count.toLocaleString()}` : "once"}</text>
  </g>`;
}

/** From the first to the last of an event, without the silences: [[start, end]]. */
function barsOf({ first, last }, silences) {
  const starts = [first, ...silences.map(([, until]) => until)],
    ends = [...silences.map(([since]) => since), last];
  return starts.map((start, at) => [start, ends[at]]);
}

/** Where no event was going on for long: [[start, end]]. */
function gapsOf(rows, from, to) {
  const found = [];
  let until = from;
  for (const [first, last] of rows
    .flatMap((row) => barsOf(row, row.rhythm?.silences ?? []))
    .sort((a, b) => a[0] - b[0])) {
    if (first - until > (to - from) * GAP) found.push([until, first]);
    until = Math.max(until, last);
  }
  if (to - until > (to - from) * GAP) found.push([until, to]);
  return found;
}
