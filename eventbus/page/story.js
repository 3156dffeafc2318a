// @ts-check
// The story of one object: its events and those of the objects it owns, and the related events before its first Warning.
import { html, useLayoutEffect, useState } from "./vendor/preact-htm.js";
import { objectOf } from "./address.js";
import { rowOf } from "./event.js";
import { Follower } from "./follower.js";
import { often } from "./list.js";
import {
  Ago,
  Announced,
  At,
  Command,
  Connection,
  Message,
  number,
  ObjectLink,
  State,
  Type,
  useNow,
  useViewKeys,
} from "./parts.js";
import { maySilence, SilenceForm } from "./silence_form.js";
import { block, line, shellWord } from "./text.js";
import { duration, iso, parse, utc } from "./time.js";
import { Timeline } from "./timeline.js";
import { goingOn, read } from "./verdicts.js";

/** Of objects that were started together, the first are named. */
const MOST_NAMES = 5;
/** Owners and owned objects that are linked. */
const MOST_RELATED = 30;
const BEFORE = ["5m", "10m", "30m", "1h"];
/** The names of links in the story of a node. */
const LINKS_OF_NODE = { change: "change on it", trouble: "Warning on it" };
const LINKS = {
  node: "its node",
  owner: "its owner",
  change: "change on its host",
  trouble: "Warning on its host",
  "same-reason": "same reason",
};

export function Story({ state, onGo, keys, session }) {
  const about = objectOf(state);
  const [silencing, setSilencing] = useState(false),
    [report, setReport] = useState("");
  const [before, setBefore] = useState("10m");
  const now = useNow(5000); // the end of the timeline
  const [found, setFound] = useState(null),
    [connection, setConnection] = useState({ name: "listing" });
  useLayoutEffect(() => {
    const follower = new Follower(about, before, {
      told: setFound,
      state: (now) => setConnection({ ...now, at: Date.now() }),
    });
    return () => follower.close();
  }, [state.object, before]);
  useViewKeys(keys, { Escape: () => onGo("") });
  const title = `${line(about.kind)}/${line(about.name)}`;
  if (!found)
    return html`<main id="main" tabindex="-1" aria-label=${title} class="story"><h1>${title}</h1><p class=${connection.why ? "bad" : "faint"} role="status">${connection.why ?? "Loading its story …"}</p></main>`;

  const own = found.events.map(rowOf),
    others = found.ofOwned.map((event) => named(rowOf(event)));
  const rhythms = new Map(found.rhythms.map((rhythm) => [rhythm.uid, readRhythm(rhythm)]));
  const rows = [...own, ...others]
    .map((row) => ({ ...row, rhythm: rhythms.get(row.key) }))
    .sort((a, b) => a.first - b.first);
  const warnings = rows.filter((row) => row.warning),
    ownWarnings = own.filter((row) => row.warning);
  const verdicts = found.verdicts.map(read);
  const { object, stored } = found;
  const owned = others.length > 0;
  return html`<main id="main" tabindex="-1" aria-label=${title} class="story">
    <div class="title"><h1><span class="kind">${line(object.kind)}/</span>${line(object.name)}</h1>
      ${object.namespace && html`<span class="faint">in ${line(object.namespace)}</span>`}
      <${Connection} line=${connection} /><${Announced} line=${connection} /></div>
    <p class="verdict"><${Verdict} verdict=${verdicts[0]} rows=${rows} /></p>
    <${Relations} found=${found} onGo=${onGo} />
    <${Commands} about=${object} />
    ${
      ownWarnings.length > 0 &&
      maySilence(session, ownWarnings[0].namespace) &&
      html`<p><button type="button" onClick=${() => setSilencing(true)}>Silence its notifications …</button> <span role="status">${report}</span></p>`
    }
    ${silencing && html`<${SilenceForm} labels=${labelsOf(ownWarnings)} onDone=${setReport} onClose=${() => setSilencing(false)} />`}
    ${
      rows.length > 0 &&
      html`<section aria-labelledby="timeline">
        <h2 id="timeline">Timeline ${owned && html`<span class="faint">with the objects it owns</span>`}</h2>
        <${Timeline} rows=${rows} warning=${warnings[0]?.first} now=${now} /></section>`
    }
    ${found.since && html`<${Around} found=${found} first=${warnings[0] ?? rows[0]} before=${before} onBefore=${setBefore} onGo=${onGo} />`}
    ${
      rows.length > 0
        ? html`<section aria-labelledby="its-events"><h2 id="its-events">Events</h2>
          <${Events} rows=${rows} goesOn=${goingOn(verdicts)} onGo=${onGo} withObject=${owned} /></section>`
        : html`<p class="nothing">No event about this object is stored. Events are kept since <${At} ms=${parse(found.begins)} />.</p>`
    }
    ${stored && html`<${Stored} object=${stored} />`}
  </main>`;
}

/** The labels of an object's alerts: with the reason, if there is one only. */
function labelsOf([{ event, namespace, about }, ...others]) {
  const { reason } = event;
  const same = others.every((row) => row.event.reason === reason);
  return { kind: about.kind, namespace, name: about.name, ...(same && { reason }) };
}

function Stored({ object }) {
  const version = line(object.metadata?.resourceVersion);
  return html`<section aria-labelledby="stored"><h2 id="stored">The stored object</h2>
    <details><summary>${line(object.apiVersion)} ${line(object.kind)}, version ${version}</summary>
      <pre tabindex="0" aria-label="The object as JSON">${block(JSON.stringify(object, null, 2))}</pre></details></section>`;
}

/** One sentence: which reason, how often, since when, and whether it goes on. */
function Verdict({ verdict, rows }) {
  if (!rows.length) return html`<span class="faint">Nothing is stored about this object.</span>`;
  if (!verdict) {
    const last = Math.max(...rows.map((row) => row.last));
    return html`<${State} good=${true}>no Warning<//>; last seen <${Ago} ms=${last} suffix=" ago" />.`;
  }
  const { reason, times, total, since, last, still, on, message } = verdict;
  return html`<b>${line(reason)}${times > 1 ? ` ${number(times)} times` : " once"}</b>,
    ${" "}${total > times ? `${number(total)} Warnings in all` : "Warnings"} since <${At} ms=${since} /> (<${Ago} ms=${since} />),
    last <${Ago} ms=${last} suffix=" ago" />:
    ${" "}<${State} good=${still === "once" ? null : !on}>${stillWords(verdict)}<//>
    <span class="quote">${line(message)}</span>`;
}

function stillWords({ still, endedBy }) {
  if (still === "once") return "only once so far";
  if (still === "goes-on") return "still failing";
  return `recovered: ${line(endedBy || "no Warning")} since then`;
}

function Relations({ found, onGo }) {
  const { object, hosts, owners, owned, stored } = found;
  const nodes = hosts
    .filter((name) => object.kind !== "Node" || name !== object.name)
    .map((name) => ({ kind: "Node", namespace: "", name }));
  const groups = [
    ["On", nodes],
    ["Belongs to", owners],
    ["Owns", owned],
  ].filter(([, objects]) => objects.length);
  const restarted = (stored?.status?.containerStatuses ?? []).filter(({ restartCount }) => restartCount > 0);
  if (!groups.length && !restarted.length) return null;
  return html`<dl class="relations">
    ${groups.map(([name, objects]) => html`<div key=${name}><dt>${name}</dt><dd><${Links} objects=${objects} most=${MOST_RELATED} onGo=${onGo} /></dd></div>`)}
    ${
      restarted.length > 0 &&
      html`<div><dt>Restarts</dt><dd>${restarted.map((status) => html`<${Restarts} key=${status.name} status=${status} /> `)}</dd></div>`
    }
  </dl>`;
}

/** Links to the first *most* objects, and how many are left out. */
function Links({ objects, most, onGo }) {
  const links = objects
    .slice(0, most)
    .map((about) => html`<${ObjectLink} key=${about.name} about=${about} onGo=${onGo} /> `);
  return html`${links}${objects.length > most ? `and ${objects.length - most} more` : ""}`;
}

/** The restarts of one container, as its stored pod counts them. */
function Restarts({ status }) {
  const ended = status.lastState?.terminated;
  const reason = ended?.reason ? ` (${line(ended.reason)})` : "";
  return html`<span><b>${line(status.name)} ${number(status.restartCount)}</b>${
    ended &&
    html`, last ended ${ended.finishedAt && html`<${At} ms=${parse(ended.finishedAt)} />`} with code ${ended.exitCode}${reason}`
  }</span>`;
}

function Commands({ about }) {
  const place = about.namespace || "default",
    target = `${line(about.kind).toLowerCase()}/${line(about.name)}`;
  // `kubectl events --for` would refuse kinds that the API does not serve.
  const [kind, name] = [about.kind, about.name].map((text) => line(text).replace(/[\\,=]/g, "\\$&"));
  const selector = shellWord(`involvedObject.kind=${kind},involvedObject.name=${name}`);
  return html`<p class="commands"><${Command} text=${`eventbus why ${shellWord(target)} -n ${shellWord(place)}`} />
    <${Command} text=${`kubectl get events -n ${shellWord(place)} --field-selector ${selector}`} /></p>`;
}

function TableHead({ columns }) {
  return html`<thead role="rowgroup"><tr role="row">${columns.map(
    (name) => html`<th role="columnheader" scope="col" key=${name}>${name}</th>`,
  )}</tr></thead>`;
}

function Events({ rows, goesOn, onGo, withObject }) {
  const object = withObject ? ["Object"] : [];
  const columns = ["First", "Last seen", "Type", "Reason", ...object, "How often", "Message", "Source"];
  return html`<div class="list small"><table role="table" aria-labelledby="its-events">
    <${TableHead} columns=${columns} />
    <tbody role="rowgroup">${[...rows].reverse().map(
      (row) => html`<tr role="row" key=${row.key} class=${row.warning ? "row warns" : "row"}>
      <td role="cell"><${At} ms=${row.first} /></td><td role="cell"><${Ago} ms=${row.last} /></td>
      <td role="cell" class="type"><${Type} warning=${row.warning} type=${row.type} /></td><td role="cell">${row.reason}</td>
      ${withObject && html`<td role="cell" class="object-cell"><${ObjectLink} about=${row.about} onGo=${onGo} /></td>`}
      <td role="cell" class="how-often">${often(row)}${silentWords(row.rhythm)}${goesOn.has(row.key) && html` <span class="goes-on">still failing</span>`}</td>
      <td role="cell" class="message whole"><${Message} text=${row.event.message} /></td>
      <td role="cell" class="source">${row.source}${row.host && html` <span class="faint">${row.host}</span>`}</td></tr>`,
    )}</tbody></table></div>`;
}

/** The minutes and silences of an event, with times as numbers. */
function readRhythm({ own, minutes, silences }) {
  return {
    own,
    minutes: minutes.map(({ at, count }) => ({ at: parse(at), count })),
    silences: silences.map(({ since, until }) => [parse(since), parse(until)]),
  };
}

function silentWords(rhythm) {
  const longest = Math.max(...(rhythm?.silences ?? []).map(([since, until]) => until - since));
  if (!(longest > 0)) return "";
  const times = rhythm.silences.length;
  return html` <span class="faint">silent ${times > 1 ? `${times} times, the longest ` : ""}${duration(longest / 1000)}</span>`;
}

/** The related events before the first Warning: on its node, of its owner, with the same reason. */
function Around({ found, first, before, onBefore, onGo }) {
  const links = found.object.kind === "Node" ? { ...LINKS, ...LINKS_OF_NODE } : LINKS;
  const beginning = first?.warning ? "first Warning" : "first event";
  const option = (name) =>
    html`<option key=${name} value=${name}>${name.replace("m", " min").replace("h", " h")}</option>`;
  return html`<section class="around" aria-labelledby="around">
    <div class="caption"><h2 id="around">Related events</h2>
      <label class="faint">in the <select aria-label="How long before" value=${before} onChange=${(event) => onBefore(event.target.value)}>${BEFORE.map(option)}</select>
        ${" "}before its ${beginning}${first && html` at <${At} ms=${first.first} />`}</label></div>
    ${
      found.around.length
        ? html`<div class="list small"><table role="table" aria-labelledby="around">
          <${TableHead} columns=${["When", "Link", "Type", "Reason", "Object", "Message"]} />
          <tbody role="rowgroup">${found.around.map(
            ({ link, event, also }) =>
              html`<${Related} key=${event.metadata.uid} link=${links[link] ?? link} row=${rowOf(event)} also=${also ?? []} first=${first} onGo=${onGo} />`,
          )}</tbody></table></div>`
        : html`<p class="nothing">No related events: none on its node, of its owner, or with the same reason.</p>`
    }
  </section>`;
}

/** *also*: objects that were started with it, shown in the same row. */
function Related({ link, row, also, first, onGo }) {
  const offset = `${row.first < first.first ? "−" : "+"}${duration(Math.abs(row.first - first.first) / 1000)}`;
  const objects = [row.about, ...also];
  return html`<tr role="row" class=${row.warning ? "row warns" : "row"}>
    <td role="cell" class="offset"><time datetime=${iso(row.first)} title=${utc(row.first)}>${offset}</time></td>
    <td role="cell">${link}</td><td role="cell" class="type"><${Type} warning=${row.warning} type=${row.type} /></td><td role="cell">${row.reason}</td>
    ${
      also.length
        ? html`<td role="cell" class="object-cell">${row.kind} ×${number(objects.length)}</td>
          <td role="cell" class="message">${number(objects.length)} started: <${Links} objects=${objects} most=${MOST_NAMES} onGo=${onGo} /></td>`
        : html`<td role="cell" class="object-cell"><${ObjectLink} about=${row.about} onGo=${onGo} /></td>
          <td role="cell" class="message" title=${row.message}>${row.message}</td>`
    }</tr>`;
}

function named(row) {
  return { ...row, lane: `${row.reason} ${row.name}` };
}
