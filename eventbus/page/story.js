// @ts-check
// One object's story: what it and its own went through, and related events before its first Warning.
import { html, useLayoutEffect, useState } from "./vendor/preact-htm.js";
import { objectOf } from "./address.js";
import { rowOf } from "./event.js";
import { Follower } from "./follower.js";
import { often } from "./list.js";
import { Ago, At, Command, Connection, Message, number, ObjectLink, State, Type, useNow } from "./parts.js";
import { block, line, shellWord } from "./text.js";
import { duration, parse } from "./time.js";
import { Timeline } from "./timeline.js";
import { goingOn, read } from "./verdicts.js";

/** Of objects that were started together, so many are named. */
const MOST_NAMES = 5;
const BEFORE = ["5m", "10m", "30m", "1h"];
/** What a link to a machine, or on it, is called in the story of the machine itself. */
const LINKS_OF_NODE = { change: "changed on it", trouble: "trouble on it" };
const LINKS = {
  node: "its node",
  owner: "its owner",
  change: "change on its host",
  trouble: "Warning on its host",
  "same-reason": "same reason",
};

export function Story({ state, onGo, keys }) {
  const about = objectOf(state);
  const [before, setBefore] = useState("10m");
  const now = useNow();
  const [found, setFound] = useState(null),
    [connection, setConnection] = useState({ name: "listing" });
  useLayoutEffect(() => {
    const follower = new Follower(about, before, {
      told: setFound,
      state: (now) => setConnection({ ...now, at: Date.now() }),
    });
    return () => follower.close();
  }, [state.object, before]);
  keys.current = { Escape: () => onGo("") };
  const title = `${line(about.kind)}/${line(about.name)}`;
  if (!found)
    return html`<main id="main" class="story"><h1>${title}</h1><p class=${connection.why ? "bad" : "faint"} role="status">${connection.why ?? "Asking for its story …"}</p></main>`;

  const own = found.events.map(rowOf),
    others = found.ofOwned.map((event) => named(rowOf(event)));
  const rhythms = new Map(found.rhythms.map((rhythm) => [rhythm.uid, readRhythm(rhythm)]));
  const rows = [...own, ...others]
    .map((row) => ({ ...row, rhythm: rhythms.get(row.key) }))
    .sort((a, b) => a.first - b.first);
  const warnings = rows.filter((row) => row.warning);
  const first = warnings[0];
  const verdicts = found.verdicts.map(read);
  return html`<main id="main" class="story">
    <div class="title"><h1><span class="kind">${line(found.object.kind)}/</span>${line(found.object.name)}</h1>
      ${found.object.namespace && html`<span class="faint">in ${line(found.object.namespace)}</span>`}
      <${Connection} line=${connection} now=${now} /></div>
    <p class="verdict"><${Verdict} verdict=${verdicts[0]} rows=${rows} now=${now} /></p>
    <${Relations} found=${found} now=${now} onGo=${onGo} />
    <${Commands} about=${found.object} />
    ${
      rows.length
        ? html`<section aria-labelledby="timeline"><h2 id="timeline">Timeline <span class="faint">${others.length > 0 ? "with what it owns" : ""}</span></h2><${Timeline} rows=${rows} warning=${first?.first} now=${now} /></section>`
        : ""
    }
    ${found.since && html`<${Around} found=${found} first=${first ?? rows[0]} before=${before} onBefore=${setBefore} now=${now} onGo=${onGo} />`}
    ${
      rows.length
        ? html`<section aria-labelledby="its-events"><h2 id="its-events">Events</h2><${Events} rows=${rows} goesOn=${goingOn(verdicts)} now=${now} onGo=${onGo} withObject=${others.length > 0} /></section>`
        : html`<p class="nothing">No event about it is stored. Events are kept since <${At} ms=${parse(found.begins)} now=${now} />.</p>`
    }
    ${
      found.stored &&
      html`<section aria-labelledby="stored"><h2 id="stored">As it is stored</h2>
      <details><summary>${line(found.stored.apiVersion)} ${line(found.stored.kind)}, version ${line(found.stored.metadata?.resourceVersion)}</summary><pre tabindex="0" aria-label="The object as JSON">${block(JSON.stringify(found.stored, null, 2))}</pre></details></section>`
    }
  </main>`;
}

/** What fails, since when, how often, and does it still: in one sentence. */
function Verdict({ verdict, rows, now }) {
  if (!rows.length) return html`<span class="faint">Nothing is stored about it.</span>`;
  if (!verdict)
    return html`<${State} good=${true}>no Warning<//>; last heard of <${Ago} ms=${Math.max(...rows.map((row) => row.last))} now=${now} suffix=" ago" />.`;
  return html`<b>${line(verdict.reason)}${verdict.times > 1 ? ` ${number(verdict.times)} times` : " once"}</b>,
    ${" "}${verdict.total > verdict.times ? `${number(verdict.total)} Warnings in all` : "Warnings"} since <${At} ms=${verdict.since} now=${now} /> (${duration((now - verdict.since) / 1000)}),
    last <${Ago} ms=${verdict.last} now=${now} suffix=" ago" />:
    ${" "}<${State} good=${verdict.still === "once" ? null : !verdict.on}>${stillWords(verdict)}<//>
    <span class="quote">${line(verdict.message)}</span>`;
}

function stillWords({ still, endedBy }) {
  if (still === "once") return "only once so far";
  if (still === "goes-on") return "still failing";
  return `recovered: ${line(endedBy || "no Warning")} since then`;
}

function Relations({ found, now, onGo }) {
  const nodes = found.hosts
    .filter((name) => found.object.kind !== "Node" || name !== found.object.name)
    .map((name) => ({ kind: "Node", namespace: "", name }));
  const groups = [
    ["On", nodes],
    ["Belongs to", found.owners],
    ["Owns", found.owned],
  ].filter(([, list]) => list.length);
  const restarted = (found.stored?.status?.containerStatuses ?? []).filter(({ restartCount }) => restartCount > 0);
  return (
    groups.length + restarted.length > 0 &&
    html`<dl class="relations">${groups.map(([name, list]) => html`<div key=${name}><dt>${name}</dt><dd>${list.slice(0, 30).map((one) => html`<${ObjectLink} key=${one.name} about=${one} onGo=${onGo} /> `)}${list.length > 30 ? `and ${list.length - 30} more` : ""}</dd></div>`)}
      ${restarted.length > 0 && html`<div><dt>Restarts</dt><dd>${restarted.map((one) => html`<${Restarts} key=${one.name} status=${one} now=${now} /> `)}</dd></div>`}</dl>`
  );
}

/** Of one container, as the store has its pod. */
function Restarts({ status, now }) {
  const ended = status.lastState?.terminated;
  return html`<span><b>${line(status.name)} ${number(status.restartCount)}</b>${ended && html`, last ended ${ended.finishedAt && html`<${At} ms=${parse(ended.finishedAt)} now=${now} />`} with code ${ended.exitCode}${ended.reason ? ` (${line(ended.reason)})` : ""}`}</span>`;
}

function Commands({ about }) {
  const place = about.namespace || "default",
    target = `${line(about.kind).toLowerCase()}/${line(about.name)}`;
  // Not `kubectl events --for`: it takes no kind that the API does not serve.
  const [kind, name] = [about.kind, about.name].map((text) => line(text).replace(/[\\,=]/g, "\\$&"));
  return html`<p class="commands"><${Command} text=${`eventbus why ${shellWord(target)} -n ${shellWord(place)}`} />
    <${Command} text=${`kubectl get events -n ${shellWord(place)} --field-selector ${shellWord(`involvedObject.kind=${kind},involvedObject.name=${name}`)}`} /></p>`;
}

function Events({ rows, goesOn, now, onGo, withObject }) {
  return html`<div class="list small"><table role="table" aria-labelledby="its-events">
    <thead role="rowgroup"><tr role="row">${["First", "Last seen", "Type", "Reason", ...(withObject ? ["Object"] : []), "How often", "Message", "Source"].map((name) => html`<th role="columnheader" scope="col" key=${name}>${name}</th>`)}</tr></thead>
    <tbody role="rowgroup">${[...rows].reverse().map(
      (row) => html`<tr role="row" key=${row.key} class=${row.warning ? "row warns" : "row"}>
      <td role="cell"><${At} ms=${row.first} now=${now} /></td><td role="cell"><${Ago} ms=${row.last} now=${now} /></td>
      <td role="cell" class="type"><${Type} warning=${row.warning} type=${row.type} /></td><td role="cell">${row.reason}</td>
      ${withObject && html`<td role="cell" class="object-cell"><${ObjectLink} about=${row.about} onGo=${onGo} /></td>`}
      <td role="cell" class="how-often">${often(row)}${silentWords(row.rhythm)}${goesOn.has(row.key) && html` <span class="goes-on">goes on</span>`}</td>
      <td role="cell" class="message whole"><${Message} text=${row.event.message} /></td>
      <td role="cell" class="source">${row.source}${row.host && html` <span class="faint">${row.host}</span>`}</td></tr>`,
    )}</tbody></table></div>`;
}

/** When it happened, with times as numbers. */
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

function Around({ found, first, before, onBefore, now, onGo }) {
  const near = found.around.map((one) => ({ link: one.link, row: rowOf(one.event), also: one.also ?? [] }));
  const links = found.object.kind === "Node" ? { ...LINKS, ...LINKS_OF_NODE } : LINKS;
  const what = first?.warning ? "first Warning" : "first event";
  return html`<section class="around" aria-labelledby="around">
    <div class="caption"><h2 id="around">Related events</h2>
      <label class="faint">in the <select aria-label="How long before" value=${before} onChange=${(happened) => onBefore(happened.target.value)}>${BEFORE.map((name) => html`<option key=${name} value=${name}>${name.replace("m", " min").replace("h", " h")}</option>`)}</select> before its ${what}${first && html` at <${At} ms=${first.first} now=${now} />`}</label></div>
    ${
      near.length
        ? html`<div class="list small"><table role="table" aria-labelledby="around">
          <thead role="rowgroup"><tr role="row">${["When", "Link", "Type", "Reason", "Object", "Message"].map((name) => html`<th role="columnheader" scope="col" key=${name}>${name}</th>`)}</tr></thead>
          <tbody role="rowgroup">${near.map(
            ({ link, row, also }) => html`<tr role="row" key=${row.key} class=${row.warning ? "row warns" : "row"}>
            <td role="cell" class="offset"><time datetime=${new Date(row.first).toISOString()} title=${new Date(row.first).toISOString()}>${row.first < first.first ? "−" : "+"}${duration(Math.abs(row.first - first.first) / 1000)}</time></td>
            <td role="cell">${links[link] ?? link}</td><td role="cell" class="type"><${Type} warning=${row.warning} type=${row.type} /></td><td role="cell">${row.reason}</td>
            ${
              also.length
                ? html`<td role="cell" class="object-cell">${row.kind} ×${number(also.length + 1)}</td>
                <td role="cell" class="message">${number(also.length + 1)} started: ${[row.about, ...also].slice(0, MOST_NAMES).map((one) => html`<${ObjectLink} key=${one.name} about=${one} onGo=${onGo} /> `)}${also.length >= MOST_NAMES ? `and ${also.length + 1 - MOST_NAMES} more` : ""}</td>`
                : html`<td role="cell" class="object-cell"><${ObjectLink} about=${row.about} onGo=${onGo} /></td><td role="cell" class="message" title=${row.message}>${row.message}</td>`
            }</tr>`,
          )}</tbody></table></div>`
        : html`<p class="nothing">Nothing that is linked to it: not on its host, not of its owner, nobody else with the same reason.</p>`
    }
  </section>`;
}

function named(row) {
  return { ...row, lane: `${row.reason} ${row.name}` };
}
