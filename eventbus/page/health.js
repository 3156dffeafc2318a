// @ts-check
// How the bus itself does: groups, sinks, partitions, what was held back, what was buried, nodes, pods.
import { html, useState } from "./vendor/preact-htm.js";
import { call, Refused } from "./api.js";
import { Ago, At, number, ObjectLink, State, Type, useNow, usePolled } from "./parts.js";
import { block, line } from "./text.js";
import { duration, parse } from "./time.js";
import { rowOf } from "./event.js";

const EVERY_MS = 5000;
/** Shown of each kind; of nodes more are asked for, that those in trouble come first. */
const MOST = 200,
  MOST_NODES = 1000;

/** What cannot be had, for it is not served or not for this user, is left out. */
async function maybe(asked) {
  try {
    return await asked;
  } catch (error) {
    if (error instanceof Refused && [403, 404].includes(error.code)) return { missing: error.message };
    throw error;
  }
}

async function askAll(signal) {
  const paths = {
    status: "/eventbus/v1/status",
    sinks: "/eventbus/v1/sinks",
    suppressed: "/eventbus/v1/suppressed",
    dead: `/eventbus/v1/dead?limit=${MOST}`,
    nodes: `/api/v1/nodes?limit=${MOST_NODES}`,
  };
  const served = await maybe(call("/api/v1", {}, { signal }));
  if (served.resources?.some(({ name, verbs }) => name === "pods" && verbs.includes("list")))
    paths.pods = `/api/v1/pods?limit=${MOST}`;
  const found = await Promise.all(Object.values(paths).map((path) => maybe(call(path, {}, { signal }))));
  return Object.fromEntries(Object.keys(paths).map((name, at) => [name, found[at]]));
}

export function Health({ session, onGo, keys }) {
  const now = useNow();
  const { found, error, again } = usePolled(askAll, EVERY_MS, []);
  keys.current = { Escape: () => onGo("") };
  if (!found)
    return html`<main id="main" class="health"><h1>Health</h1><p class=${error ? "bad" : "faint"} role="status">${error ? error.message : "Asking …"}</p></main>`;
  const { status, sinks, suppressed, dead, nodes, pods } = found;
  return html`<main id="main" class="health">
    <div class="title"><h1>Health</h1>${error ? html`<span class="line bad"><span aria-hidden="true">✕</span> cut off: ${error.message}</span>` : html`<span class="faint">every ${EVERY_MS / 1000} s</span>`}
      ${status.server && html`<span class="faint">${line(status.server)}, prefix ${line(status.prefix)}</span>`}</div>
    <div class="cards">
      <${Groups} status=${status} />
      <${Sinks} sinks=${sinks} now=${now} />
      <${Nodes} nodes=${nodes} now=${now} onGo=${onGo} />
      ${pods?.items?.length > 0 && html`<${Pods} pods=${pods} now=${now} onGo=${onGo} />`}
      <${Dead} dead=${dead} now=${now} session=${session} onDone=${again} onGo=${onGo} />
      <${Suppressed} suppressed=${suppressed} />
      <${Partitions} status=${status} />
    </div>
  </main>`;
}

function Card({ id, title, note, missing, empty, children }) {
  return html`<section class="card" id=${`${id}-card`} aria-labelledby=${id}><div class="caption"><h2 id=${id}>${title}</h2>${note && html`<span class="faint">${note}</span>`}</div>
    ${missing ? html`<p class="faint">${missing}</p>` : empty ? html`<p class="faint">${empty}</p>` : children}</section>`;
}

function Table({ label, columns, children }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${`${label}, table`}><table aria-labelledby=${label}>
    <thead><tr>${columns.map((name) => html`<th scope="col" key=${name} class=${name.startsWith("#") ? "number" : ""}>${name.replace("#", "")}</th>`)}</tr></thead><tbody>${children}</tbody></table></div>`;
}

function Groups({ status }) {
  const groups = status.groups ?? [];
  return html`<${Card} id="groups" title="Groups and workers" missing=${status.missing} empty=${!groups.length && "No group reads the stream yet: eventbus worker sink"}>
    <${Table} label="groups" columns=${["Group", "State", "#Lag", "#Delay", "#Pending", "#Lost", "Workers"]}>
      ${groups.map((group) => {
        const alive = group.workers.filter((worker) => worker.alive);
        const good = !group.destroyed && alive.length > 0 && group.behindS < 30;
        return html`<tr key=${group.name}><th scope="row">${line(group.name)}</th>
          <td><${State} good=${good}>${group.destroyed ? "destroyed" : !alive.length ? "no worker lives" : group.behindS >= 30 ? "late" : "up to date"}<//></td>
          <td class="number">${group.lag === null ? "?" : number(group.lag)}</td><td class="number">${duration(group.behindS)}</td><td class="number">${number(group.pending)}</td><td class="number">${number(group.lost)}</td>
          <td>${group.workers.map((worker) => html`<div key=${worker.name} class="worker"><${State} good=${worker.alive}>${worker.alive ? "alive" : `silent ${worker.seenS === null ? "" : duration(worker.seenS)}`}<//> ${line(worker.name)} <span class="faint">${worker.partitions.length ? `partition ${worker.partitions.join(", ")}` : ""}</span></div>`)}</td></tr>`;
      })}<//><//>`;
}

function Sinks({ sinks, now }) {
  const items = sinks.items ?? [];
  return html`<${Card} id="sinks" title="Sinks" missing=${sinks.missing} empty=${!items.length && "No external sink: eventbus worker export --to …"}>
    <${Table} label="sinks" columns=${["Sink", "State", "#Lag", "#Delay", "#Written", "#Retries", "#Dead"]}>
      ${items.map(
        (sink) => html`<tr key=${sink.name}><th scope="row">${line(sink.name)}</th>
        <td class="wrap">${sink.pausedSinceMs ? html`<${State} good=${false}>paused since <${At} ms=${sink.pausedSinceMs} now=${now} /><//>` : sink.orphans.length ? html`<${State} good=${false}>no worker lives<//>` : html`<${State} good=${true}>writes<//>`}${sink.error && html`<div>${line(sink.error)} <span class="faint"><${Ago} ms=${sink.errorMs} now=${now} suffix=" ago" /></span></div>`}</td>
        <td class="number">${number(sink.lag)}</td><td class="number">${duration(sink.behindS)}</td><td class="number">${number(sink.written)}</td><td class="number">${number(sink.retries)}</td><td class="number">${number(sink.dead)}</td></tr>`,
      )}<//><//>`;
}

/** The conditions that are not as they should be: Ready False, or any other True. */
function wrongOf(node) {
  const conditions = node.status?.conditions ?? [];
  return conditions.filter(({ type, status }) => (type === "Ready" ? status !== "True" : status !== "False"));
}

function Nodes({ nodes, now, onGo }) {
  const items = nodes.items ?? [];
  const sorted = [...items].sort(
    (a, b) => wrongOf(b).length - wrongOf(a).length || (a.metadata.name < b.metadata.name ? -1 : 1),
  );
  const wrong = items.filter((node) => wrongOf(node).length).length;
  return html`<${Card} id="nodes" title="Nodes" note=${items.length ? `${number(items.length - wrong)} of ${number(items.length)} well${beyond(nodes)}` : ""} missing=${nodes.missing} empty=${!items.length && "No node: eventbus worker agent, or eventbus heartbeat"}>
    <${Table} label="nodes" columns=${["Node", "Conditions", "Heard of", "Machine"]}>
      ${sorted.slice(0, MOST).map((node) => {
        const conditions = node.status?.conditions ?? [],
          wrongs = wrongOf(node),
          ready = conditions.find(({ type }) => type === "Ready");
        return html`<tr key=${node.metadata.name}><th scope="row"><${ObjectLink} about=${{ kind: "Node", namespace: "", name: node.metadata.name }} onGo=${onGo} /></th>
          <td>${wrongs.length ? wrongs.map((one) => html`<div key=${one.type} title=${line(one.message)}><${State} good=${one.status === "Unknown" ? null : false}>${line(one.type)} ${line(one.status)}<//> <span class="faint">${line(one.reason)}, ${duration((now - parse(one.lastTransitionTime)) / 1000)}</span></div>`) : html`<${State} good=${conditions.length ? true : null}>${conditions.length ? "Ready" : "no condition"}<//>`}</td>
          <td>${ready?.lastHeartbeatTime && html`<${Ago} ms=${parse(ready.lastHeartbeatTime)} now=${now} suffix=" ago" />`}</td>
          <td class="faint">${[node.status?.nodeInfo?.osImage, node.status?.capacity?.cpu && `${node.status.capacity.cpu} cores`].filter(Boolean).map(line).join(", ")}</td></tr>`;
      })}<//><//>`;
}

/** How many a list leaves out. */
const beyond = ({ metadata }) =>
  metadata.remainingItemCount ? `, ${number(metadata.remainingItemCount)} more not asked for` : "";

function Pods({ pods, now, onGo }) {
  const restarts = (pod) =>
    (pod.status?.containerStatuses ?? []).reduce((sum, { restartCount = 0 }) => sum + restartCount, 0);
  return html`<${Card} id="pods" title="Pods" note=${`${number(pods.items.length)}${beyond(pods)}`}>
    <${Table} label="pods" columns=${["Pod", "State", "#Restarts", "Node", "Age"]}>
      ${pods.items.map(
        (
          pod,
        ) => html`<tr key=${pod.metadata.uid}><th scope="row"><${ObjectLink} about=${{ kind: "Pod", namespace: pod.metadata.namespace, name: pod.metadata.name }} onGo=${onGo} /></th>
        <td><${State} good=${["Running", "Succeeded"].includes(pod.status?.phase) ? true : pod.status?.phase === "Failed" ? false : null}>${line(pod.status?.phase ?? "Unknown")}<//></td>
        <td class="number">${number(restarts(pod))}</td><td>${line(pod.spec?.nodeName)}</td><td><${Ago} ms=${parse(pod.metadata.creationTimestamp)} now=${now} /></td></tr>`,
      )}<//><//>`;
}

function Dead({ dead, now, session, onDone, onGo }) {
  const [shown, show] = useState(""),
    [sure, setSure] = useState(""),
    [said, say] = useState("");
  const items = dead.items ?? [];
  const act = async (entry, verb) => {
    if (verb === "discard" && sure !== entry.id) return setSure(entry.id);
    try {
      await call(`/eventbus/v1/dead/${entry.id}/${verb}`, {}, { method: "POST" });
      say(`${entry.id} ${verb === "replay" ? "was given back to its group" : "was let go"}`);
    } catch (error) {
      say(`${entry.id}: ${error.message}`);
    }
    setSure("");
    onDone();
  };
  const { may } = session;
  return html`<${Card} id="dead" title="Dead letter" note=${items.length ? `${number(items.length)}${dead.more ? "+" : ""} ${items.length === 1 ? "entry" : "entries"} that nobody could handle` : ""} missing=${dead.missing} empty=${!items.length && "Nothing was buried."}>
    <p role="status" class="said">${said}</p>
    <${Table} label="dead" columns=${["Entry", "When", "Group", "Cause", "Why", "#Deaths", "Do"]}>
      ${items.map((entry) => [
        html`<tr key=${entry.id}><th scope="row">${line(entry.id)}</th><td><${Ago} ms=${parse(entry.time)} now=${now} suffix=" ago" /></td><td>${line(entry.group)}</td><td>${line(entry.cause)}</td><td class="wrap">${line(entry.why)}</td><td class="number">${number(entry.deaths)}</td>
          <td class="actions"><button type="button" aria-expanded=${shown === entry.id ? "true" : "false"} onClick=${() => show(shown === entry.id ? "" : entry.id)} aria-label=${`Show ${entry.id}`}>show</button>
            ${may.replay && html`<button type="button" onClick=${() => act(entry, "replay")} aria-label=${`Replay ${entry.id}`}>replay</button>`}
            ${may.discard && html`<button type="button" class="danger" onClick=${() => act(entry, "discard")} aria-label=${sure === entry.id ? `Discard ${entry.id} for good` : `Discard ${entry.id}`}>${sure === entry.id ? "for good?" : "discard"}</button>`}</td></tr>`,
        shown === entry.id &&
          html`<tr key=${`${entry.id} shown`}><td colspan="7">${entry.events.length ? entry.events.map((event) => html`<${Buried} event=${event} onGo=${onGo} />`) : "None of its events can be read."}
          <pre tabindex="0" aria-label="The entry as JSON">${block(JSON.stringify(entry, null, 2))}</pre></td></tr>`,
      ])}<//><//>`;
}

function Buried({ event, onGo }) {
  const row = rowOf(event);
  return html`<p><${Type} warning=${row.warning} type=${row.type} /> <b>${row.reason}</b> <${ObjectLink} about=${row.about} onGo=${onGo} /> ${row.message}</p>`;
}

function Suppressed({ suppressed }) {
  const items = suppressed.items ?? [];
  return html`<${Card} id="suppressed" title="Suppressed, aggregated, evicted" missing=${suppressed.missing} empty=${!items.length && "No event was suppressed, aggregated or evicted."}>
    <${Table} label="suppressed" columns=${["Source", "Kind", "Type", "Reason", "#Suppressed", "#Aggregated", "#Not created", "#Evicted"]}>
      ${items.slice(0, 50).map(
        (
          one,
          at,
        ) => html`<tr key=${at}><th scope="row">${one.kind ? line(one.component) : "all others"}</th><td>${line(one.kind)}</td><td>${line(one.type)}</td><td>${line(one.reason)}</td>
        <td class="number">${number(one.suppressed)}</td><td class="number">${number(one.aggregated)}</td><td class="number">${number(one.notCreated)}</td><td class="number">${number(one.evicted)}</td></tr>`,
      )}<//><//>`;
}

function Partitions({ status }) {
  const share = (level) => (level.bound ? `${Math.round((100 * level.used) / level.bound)} %` : number(level.used));
  return html`<${Card} id="partitions" title="Partitions" missing=${status.missing}>
    <${Table} label="partitions" columns=${["Partition", "#Published", "#Stream", "#Changes", "#Stored", "#Stored share", "#Buried", "Held by"]}>
      ${(status.partitions ?? []).map(
        (
          one,
        ) => html`<tr key=${one.number}><th scope="row">${one.number}</th><td class="number">${number(one.published)}</td><td class="number">${share(one.incoming)}</td><td class="number">${share(one.changes)}</td>
        <td class="number">${number(one.stored.used)}</td><td class="number">${share(one.stored)}</td><td class="number">${number(one.deadEvents)}</td><td>${line(one.holder) || html`<span class="faint">nobody</span>`}</td></tr>`,
      )}<//><//>`;
}
