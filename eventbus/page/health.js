// @ts-check
// The health of the bus: one sentence, then groups, exports, expected events, nodes, pods, the dead letter, dropped repeats and partitions.
import { html, useState } from "./vendor/preact-htm.js";
import { call, optional } from "./api.js";
import { Ago, At, Card, number, ObjectLink, State, Table, Type, usePolled, useViewKeys } from "./parts.js";
import { block, line } from "./text.js";
import { duration, parse } from "./time.js";
import { rowOf } from "./event.js";
import { Expected, expectedTroubles } from "./expected.js";
import { badConditions, exportTroubles, fleetTroubles, groupTroubles, heartbeatOf, TroubleList } from "./troubles.js";

const EVERY_MS = 5000;
/** Rows of a table. More nodes are requested, so that those with problems can be shown first. */
const MOST = 200,
  MOST_NODES = 1000;

async function requestAll(signal) {
  const paths = {
    status: "/eventbus/v1/status",
    sinks: "/eventbus/v1/sinks",
    expected: "/eventbus/v1/expected",
    suppressed: "/eventbus/v1/suppressed",
    dead: `/eventbus/v1/dead?limit=${MOST}`,
    nodes: `/api/v1/nodes?limit=${MOST_NODES}`,
    leases: `/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases?limit=${MOST_NODES}`,
  };
  const resources = await optional(call("/api/v1", {}, { signal }));
  if (resources.resources?.some(({ name, verbs }) => name === "pods" && verbs.includes("list")))
    paths.pods = `/api/v1/pods?limit=${MOST}`;
  const answers = await Promise.all(Object.values(paths).map((path) => optional(call(path, {}, { signal }))));
  return Object.fromEntries(Object.keys(paths).map((name, at) => [name, answers[at]]));
}

export function Health({ session, onGo, keys }) {
  const { found, error, again } = usePolled(requestAll, EVERY_MS, []);
  useViewKeys(keys, { Escape: () => onGo("") });
  if (!found)
    return html`<main id="main" tabindex="-1" aria-label="Health" class="health"><h1>Health</h1><p class=${error ? "bad" : "faint"} role="status">${error ? error.message : "Loading …"}</p></main>`;
  const { status, sinks, expected, suppressed, dead, nodes, leases, pods } = found;
  return html`<main id="main" tabindex="-1" aria-label="Health" class="health">
    <div class="title"><h1>Health</h1>
      ${error ? html`<span class="line bad"><span aria-hidden="true">✕</span> cut off: ${error.message}</span>` : html`<span class="faint">updated every ${EVERY_MS / 1000} s</span>`}
      ${status.server && html`<span class="faint">${line(status.server)}, prefix ${line(status.prefix)}</span>`}</div>
    <${Summary} found=${found} />
    <div class="cards">
      <${Groups} status=${status} />
      <${Exports} sinks=${sinks} />
      <${Expected} expected=${expected} onGo=${onGo} />
      <${Nodes} nodes=${nodes} leases=${leases} onGo=${onGo} />
      ${pods?.items?.length > 0 && html`<${Pods} pods=${pods} onGo=${onGo} />`}
      <${Dead} dead=${dead} session=${session} onDone=${again} onGo=${onGo} />
      <${Suppressed} suppressed=${suppressed} />
      <${Partitions} status=${status} />
    </div>
  </main>`;
}

/** All well, or a line for each problem. */
function Summary({ found }) {
  const { status, sinks, expected } = found;
  const troubles = [
    ...(status.missing ? [] : groupTroubles(status)),
    ...exportTroubles(sinks),
    ...expectedTroubles(expected),
    ...fleetTroubles(found),
  ];
  if (troubles.length) return html`<${TroubleList} troubles=${troubles} />`;
  if (status.missing) return null;
  return html`<p class="summary"><${State} good=${true}>All is well<//>: every group and export keeps up, every node is ready, and the dead letter is empty.</p>`;
}

function Groups({ status }) {
  const groups = status.groups ?? [];
  const rows = groups.map((group) => ({
    key: group.name,
    cells: [
      line(group.name),
      groupState(group),
      group.lag === null ? "?" : number(group.lag),
      duration(group.behindS),
      number(group.pending),
      number(group.lost),
      group.workers.map((worker) => html`<${Worker} key=${worker.name} worker=${worker} />`),
    ],
  }));
  return html`<${Card} id="groups" title="Groups and workers" missing=${status.missing} empty=${!groups.length && "No group reads the stream yet: eventbus worker sink"}>
    <${Table} label="groups" columns=${["Group", "State", "#Lag", "#Delay", "#Pending", "#Lost", "Workers"]} rows=${rows} /><//>`;
}

function groupState({ destroyed, workers, behindS }) {
  if (destroyed) return html`<${State} good=${false}>destroyed<//>`;
  if (!workers.some(({ alive }) => alive)) return html`<${State} good=${false}>no worker runs<//>`;
  return behindS >= 30 ? html`<${State} good=${false}>late<//>` : html`<${State} good=${true}>up to date<//>`;
}

function Worker({ worker }) {
  const { name, alive, seenS, partitions } = worker;
  const state = alive ? "alive" : `silent ${seenS === null ? "" : duration(seenS)}`;
  return html`<div class="worker"><${State} good=${alive}>${state}<//> ${line(name)}
    ${" "}<span class="faint">${partitions.length ? `partition ${partitions.join(", ")}` : ""}</span></div>`;
}

function Exports({ sinks }) {
  const items = sinks.items ?? [];
  const rows = items.map((sink) => ({
    key: sink.name,
    cells: [
      line(sink.name),
      html`${exportState(sink)}${sink.error && html`<div class="wrap">${line(sink.error)} <span class="faint"><${Ago} ms=${sink.errorMs} suffix=" ago" /></span></div>`}`,
      number(sink.lag),
      duration(sink.behindS),
      number(sink.written),
      number(sink.retries),
      number(sink.dead),
    ],
  }));
  return html`<${Card} id="sinks" title="Exports" missing=${sinks.missing} empty=${!items.length && "No export: eventbus worker export --to …"}>
    <${Table} label="sinks" columns=${["Export", "State", "#Lag", "#Delay", "#Written", "#Retries", "#Dead"]} rows=${rows} /><//>`;
}

function exportState({ pausedSinceMs, orphans }) {
  if (pausedSinceMs) return html`<${State} good=${false}>paused since <${At} ms=${pausedSinceMs} /><//>`;
  return orphans.length ? html`<${State} good=${false}>no worker runs<//>` : html`<${State} good=${true}>writing<//>`;
}

function Nodes({ nodes, leases, onGo }) {
  const items = nodes.items ?? [];
  const problems = (node) => badConditions(node).length + (heartbeatOf(node, leases)?.silent ? 1 : 0);
  const sorted = [...items].sort((a, b) => problems(b) - problems(a) || (a.metadata.name < b.metadata.name ? -1 : 1));
  const well = items.filter((node) => !problems(node)).length;
  const rows = sorted.slice(0, MOST).map((node) => ({
    key: node.metadata.name,
    cells: [
      html`<${ObjectLink} about=${{ kind: "Node", namespace: "", name: node.metadata.name }} onGo=${onGo} />`,
      html`<${Conditions} node=${node} />`,
      html`<${Heartbeat} node=${node} leases=${leases} />`,
      html`<span class="faint">${machineOf(node)}</span>`,
    ],
  }));
  const note = items.length ? `${number(well)} of ${number(items.length)} well${beyond(nodes)}` : "";
  return html`<${Card} id="nodes" title="Nodes" note=${note} missing=${nodes.missing} empty=${!items.length && "No node: eventbus worker agent, or eventbus heartbeat"}>
    <${Table} label="nodes" columns=${["Node", "Conditions", "Heartbeat", "Machine"]} rows=${rows} /><//>`;
}

function Conditions({ node }) {
  const bad = badConditions(node);
  if (!node.status?.conditions?.length) return html`<${State} good=${null}>no condition<//>`;
  if (!bad.length) return html`<${State} good=${true}>Ready<//>`;
  return bad.map(
    ({ type, status, reason, message, lastTransitionTime }) => html`<div key=${type} title=${line(message)}>
      <${State} good=${status === "Unknown" ? null : false}>${line(type)} ${line(status)}<//>
      ${" "}<span class="faint">${line(reason)}, <${Ago} ms=${parse(lastTransitionTime)} /></span></div>`,
  );
}

/** The age of the node's lease; it is bad when the lease has run out. */
function Heartbeat({ node, leases }) {
  const heartbeat = heartbeatOf(node, leases);
  if (heartbeat) return html`<${State} good=${!heartbeat.silent}><${Ago} ms=${heartbeat.ms} suffix=" ago" /><//>`;
  const ready = node.status?.conditions?.find(({ type }) => type === "Ready");
  return ready?.lastHeartbeatTime && html`<${Ago} ms=${parse(ready.lastHeartbeatTime)} suffix=" ago" />`;
}

function machineOf({ status }) {
  const cores = status?.capacity?.cpu && `${status.capacity.cpu} cores`;
  return [status?.nodeInfo?.osImage, cores].filter(Boolean).map(line).join(", ");
}

/** How many objects a list left out. */
const beyond = ({ metadata }) =>
  metadata.remainingItemCount ? `, ${number(metadata.remainingItemCount)} more not loaded` : "";

function Pods({ pods, onGo }) {
  const restarts = ({ status }) =>
    (status?.containerStatuses ?? []).reduce((sum, { restartCount = 0 }) => sum + restartCount, 0);
  const good = { Running: true, Succeeded: true, Failed: false };
  const rows = pods.items.map((pod) => ({
    key: pod.metadata.uid,
    cells: [
      html`<${ObjectLink} about=${{ kind: "Pod", namespace: pod.metadata.namespace, name: pod.metadata.name }} onGo=${onGo} />`,
      html`<${State} good=${good[pod.status?.phase] ?? null}>${line(pod.status?.phase ?? "Unknown")}<//>`,
      number(restarts(pod)),
      line(pod.spec?.nodeName),
      html`<${Ago} ms=${parse(pod.metadata.creationTimestamp)} />`,
    ],
  }));
  return html`<${Card} id="pods" title="Pods" note=${`${number(pods.items.length)}${beyond(pods)}`}>
    <${Table} label="pods" columns=${["Pod", "State", "#Restarts", "Node", "Age"]} rows=${rows} /><//>`;
}

function Dead({ dead, session, onDone, onGo }) {
  const [shown, show] = useState(""),
    [toConfirm, setToConfirm] = useState(""),
    [report, setReport] = useState("");
  const items = dead.items ?? [];
  const act = async (entry, verb) => {
    if (verb === "discard" && toConfirm !== entry.id) return setToConfirm(entry.id);
    try {
      const path = `/eventbus/v1/dead/${entry.id}`;
      if (verb === "replay") await call(`${path}/replay`, {}, { method: "POST" });
      else await call(path, {}, { method: "DELETE" });
      setReport(`${entry.id} was ${verb === "replay" ? "replayed" : "discarded"}`);
    } catch (error) {
      setReport(`${entry.id}: ${error.message}`);
    }
    setToConfirm("");
    onDone();
  };
  const rows = items.map((entry) => ({
    key: entry.id,
    cells: [
      line(entry.id),
      html`<${Ago} ms=${parse(entry.time)} suffix=" ago" />`,
      line(entry.group),
      line(entry.cause),
      html`<div class="wrap">${line(entry.why)}</div>`,
      number(entry.deaths),
      html`<${Actions} entry=${entry} may=${session.may} shown=${shown === entry.id} toConfirm=${toConfirm === entry.id}
        onShow=${() => show(shown === entry.id ? "" : entry.id)} onAct=${act} />`,
    ],
    after: shown === entry.id && html`<${DeadEntry} entry=${entry} onGo=${onGo} />`,
  }));
  const entries = items.length === 1 ? "entry" : "entries";
  const note = items.length
    ? `${number(items.length)}${dead.more ? "+" : ""} ${entries} that could not be processed`
    : "";
  return html`<${Card} id="dead" title="Dead letter" note=${note} missing=${dead.missing} empty=${!items.length && "The dead letter is empty."}>
    <p role="status" class="report">${report}</p>
    <${Table} label="dead" columns=${["Entry", "When", "Group", "Cause", "Why", "#Deaths", "Actions"]} rows=${rows} /><//>`;
}

function Actions({ entry, may, shown, toConfirm, onShow, onAct }) {
  const { id } = entry;
  return html`<span class="actions">
    <button type="button" aria-expanded=${shown ? "true" : "false"} onClick=${onShow} aria-label=${`Show ${id}`}>show</button>
    ${may.replay && html`<button type="button" onClick=${() => onAct(entry, "replay")} aria-label=${`Replay ${id}`}>replay</button>`}
    ${
      may.discard &&
      html`<button type="button" class="danger" onClick=${() => onAct(entry, "discard")} aria-label=${toConfirm ? `Discard ${id} for good` : `Discard ${id}`}>${toConfirm ? "for good?" : "discard"}</button>`
    }</span>`;
}

function DeadEntry({ entry, onGo }) {
  const events = entry.events.map(rowOf).map(
    (row) => html`<p><${Type} warning=${row.warning} type=${row.type} /> <b>${row.reason}</b>
      ${" "}<${ObjectLink} about=${row.about} onGo=${onGo} /> ${row.message}</p>`,
  );
  return html`${events.length ? events : "None of its events can be read."}
    <pre tabindex="0" aria-label="The entry as JSON">${block(JSON.stringify(entry, null, 2))}</pre>`;
}

function Suppressed({ suppressed }) {
  const items = suppressed.items ?? [];
  const rows = items.slice(0, 50).map((count, at) => ({
    key: at,
    cells: [
      count.kind ? line(count.component) : "all others",
      line(count.kind),
      line(count.type),
      line(count.reason),
      ...[count.suppressed, count.aggregated, count.notCreated, count.evicted].map(number),
    ],
  }));
  const columns = ["Source", "Kind", "Type", "Reason", "#Suppressed", "#Aggregated", "#Not created", "#Evicted"];
  return html`<${Card} id="suppressed" title="Suppressed, aggregated, evicted" missing=${suppressed.missing} empty=${!items.length && "No event was suppressed, aggregated or evicted."}>
    <${Table} label="suppressed" columns=${columns} rows=${rows} /><//>`;
}

function Partitions({ status }) {
  const share = ({ bound, used }) => (bound ? `${Math.round((100 * used) / bound)} %` : number(used));
  const rows = (status.partitions ?? []).map((partition) => ({
    key: partition.number,
    cells: [
      partition.number,
      number(partition.published),
      share(partition.incoming),
      share(partition.changes),
      number(partition.stored.used),
      share(partition.stored),
      number(partition.deadEvents),
      line(partition.holder) || html`<span class="faint">none</span>`,
    ],
  }));
  const columns = [
    "Partition",
    "#Published",
    "#Stream",
    "#Changes",
    "#Stored",
    "#Stored share",
    "#Dead letter",
    "Worker",
  ];
  return html`<${Card} id="partitions" title="Partitions" missing=${status.missing}>
    <${Table} label="partitions" columns=${columns} rows=${rows} /><//>`;
}
