// @ts-check
// The chart of counts: every occurrence by minute, Warnings in a color of their own.
import { html, useEffect, useMemo, useRef, useState } from "./vendor/preact-htm.js";
import { call } from "./api.js";
import { fitsFacets, namespaceOf } from "./address.js";
import { number } from "./parts.js";
import { clock, iso, utc } from "./time.js";

const HEIGHT = 104;
const MOST_BARS = 72;
const STEPS_S = [60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200];

/** Request the counts of a period: {rows, begins, stepS, since, until}. */
export async function askCounts(state, { since, until }, signal) {
  const end = until ?? Date.now();
  const stepS = STEPS_S.find((step) => (end - since) / 1000 / step <= MOST_BARS) ?? 86400;
  const query = { namespace: namespaceOf(state), by: "namespace,kind,type,reason,source", step: stepS };
  const found = await call("/eventbus/v1/histogram", { ...query, since: iso(since), until: iso(end) }, { signal });
  const rows = found.rows.map((row) => ({ ...row, ms: Date.parse(row.time) }));
  return { rows, begins: Date.parse(found.begins), stepS, since, until: end };
}

/** The bars of the occurrences that match the facets: {times (s), normal, warning}, one for each step. */
function barsOf(counts, state) {
  const { since, until, stepS } = counts;
  const first = Math.floor(since / 1000 / stepS) * stepS;
  const length = Math.max(1, Math.floor((until / 1000 - first) / stepS) + 1);
  const normal = new Array(length).fill(0),
    warning = new Array(length).fill(0);
  for (const row of counts.rows) {
    const place = Math.round((row.ms / 1000 - first) / stepS);
    if (place < 0 || place >= length || !fitsFacets(state, row)) continue;
    (row.type === "Warning" ? warning : normal)[place] += row.count;
  }
  return { times: normal.map((_, place) => first + place * stepS), normal, warning, stepS };
}

/** *uncounted*: words or selectors are set, which the counts do not know. */
export function Histogram({ counts, state, uncounted, onZoom, scheme }) {
  const bars = useMemo(() => barsOf(counts, state), [counts, state]);
  const [over, setOver] = useState(null);
  const total = (list) => list.reduce((sum, count) => sum + count, 0);
  const warnings = over === null ? total(bars.warning) : bars.warning[over];
  const normals = over === null ? total(bars.normal) : bars.normal[over];
  const barPeriod = () => `${clock(bars.times[over] * 1000)} – ${clock((bars.times[over] + bars.stepS) * 1000)}`;
  return html`<section class="histogram" aria-labelledby="how-often">
    <div class="caption">
      <h2 id="how-often">How often</h2>
      <span><span class="swatch warning" aria-hidden="true"></span> ${number(warnings)} Warning</span>
      <span><span class="swatch normal" aria-hidden="true"></span> ${number(normals)} Normal</span>
      <span class="faint">${over === null ? `every occurrence, ${stepWord(bars.stepS)} a bar; drag to zoom` : barPeriod()}</span>
      ${uncounted && html`<span class="uncounted">not filtered by words or selectors</span>`}
    </div>
    <${Chart} bars=${bars} counts=${counts} onZoom=${onZoom} onOver=${setOver} scheme=${scheme} />
    <${AsTable} bars=${bars} onZoom=${onZoom} />
  </section>`;
}

function Chart({ bars, counts, onZoom, onOver, scheme }) {
  const place = useRef(null),
    zoom = useRef(onZoom);
  zoom.current = onZoom;
  const [loaded, setLoaded] = useState(Boolean(uPlotOf()));
  // During a drag the bars stay, because a chart that is drawn again forgets where the drag began.
  const [held, setHeld] = useState(null);
  const drawn = held ?? { bars, counts };
  useEffect(() => {
    if (!held) return;
    const release = () => setHeld(null);
    window.addEventListener("mouseup", release);
    return () => window.removeEventListener("mouseup", release);
  }, [held]);
  useEffect(() => {
    if (!loaded) return whenLoaded(() => setLoaded(true));
    const chart = draw(place.current, drawn.bars, drawn.counts, (from, to) => zoom.current(from, to), onOver);
    const resized = new ResizeObserver(([entry]) =>
      chart.setSize({ width: Math.floor(entry.contentRect.width), height: HEIGHT }),
    );
    resized.observe(place.current);
    return () => {
      resized.disconnect();
      chart.destroy();
    };
  }, [drawn.bars, drawn.counts, scheme, loaded]);
  return html`<div class="chart" ref=${place} aria-hidden="true" onMouseDown=${() => setHeld({ bars, counts })}></div>`;
}

/** The chart library is a classic script, loaded without delaying the list; undefined until then. */
const uPlotOf = () => /** @type {any} */ (window).uPlot;

/** Call *then* when the chart library is loaded. Returns a function that cancels this. */
function whenLoaded(then) {
  const script = document.querySelector('script[src$="uPlot.iife.min.js"]');
  script.addEventListener("load", then);
  return () => script.removeEventListener("load", then);
}

function draw(place, bars, counts, onZoom, onOver) {
  const colour = (name) => getComputedStyle(place).getPropertyValue(name).trim();
  const probe = (name) => resolved(place, colour(name));
  const both = bars.normal.map((count, at) => count + bars.warning[at]);
  const uPlot = uPlotOf();
  const bar = uPlot.paths.bars({ size: [0.86, 28, 1], align: 1 });
  const axis = { stroke: probe("--faint"), font: "11px system-ui, sans-serif", ticks: { show: false } };
  const series = (name) => ({ fill: probe(name), stroke: probe(name), width: 0, paths: bar, points: { show: false } });
  const options = {
    width: Math.max(place.clientWidth, 200),
    height: HEIGHT,
    padding: [6, 18, 0, 0],
    legend: { show: false },
    cursor: { y: false, points: { show: false }, drag: { x: true, y: false, dist: 4 } },
    scales: {
      x: { range: () => [counts.since / 1000, Math.max(counts.until / 1000, counts.since / 1000 + bars.stepS)] },
      y: { range: (_, __, most) => [0, Math.max(most, 4)] },
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        space: 70,
        size: 22,
        values: (_, times) => times.map((time) => clock(time * 1000).replace(/:\d\d$/, "")),
      },
      {
        ...axis,
        grid: { stroke: probe("--line"), width: 1 },
        size: (_, counts) => 19 + 7 * Math.max(3, ...(counts ?? []).map(({ length }) => length)),
        space: 28,
        incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 50000, 100000],
      },
    ],
    series: [{}, series("--bar"), series("--warning-bar")],
    hooks: {
      setCursor: [(chart) => onOver(chart.cursor.idx !== null && chart.cursor.left >= 0 ? barAt(chart, bars) : null)],
      setSelect: [
        (chart) => {
          const { left, width } = chart.select;
          if (width < 4) return;
          onZoom(chart.posToVal(left, "x") * 1000, chart.posToVal(left + width, "x") * 1000);
        },
      ],
    },
  };
  return new uPlot(options, [bars.times, both, bars.warning], place);
}

function barAt(chart, bars) {
  const time = chart.posToVal(chart.cursor.left, "x");
  const found = Math.floor((time - bars.times[0]) / bars.stepS);
  return found >= 0 && found < bars.times.length ? found : null;
}

/** The value of a CSS color such as light-dark(), as a color that a canvas understands. */
function resolved(place, value) {
  const probe = document.createElement("i");
  probe.style.color = value;
  place.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** The chart as a table, which also zooms without a mouse. */
function AsTable({ bars, onZoom }) {
  const places = bars.times.map((_, place) => place).filter((place) => bars.normal[place] || bars.warning[place]);
  const [open, setOpen] = useState(false);
  return html`<details class="as-table" onToggle=${(happened) => setOpen(happened.target.open)}>
    <summary>The chart as a table</summary>
    ${
      open &&
      html`<div class="scroll" tabindex="0" role="region" aria-label="The chart as a table">
      <table>
        <thead><tr><th scope="col">From</th><th scope="col" class="number">Warning</th><th scope="col" class="number">Normal</th><th scope="col">Zoom</th></tr></thead>
        <tbody>
          ${places.map((place) => {
            const from = bars.times[place] * 1000;
            return html`<tr key=${from}>
              <td><time datetime=${iso(from)} title=${utc(from)}>${clock(from)}</time></td>
              <td class="number">${number(bars.warning[place])}</td><td class="number">${number(bars.normal[place])}</td>
              <td><button type="button" onClick=${() => onZoom(from, from + bars.stepS * 1000)} aria-label=${`Show only ${clock(from)}`}>zoom</button></td>
            </tr>`;
          })}
        </tbody>
      </table>
    </div>`
    }
  </details>`;
}

function stepWord(stepS) {
  return stepS < 3600 ? `${stepS / 60} min` : stepS < 86400 ? `${stepS / 3600} h` : `${stepS / 86400} d`;
}
