// @ts-check
// States in words that the bus itself has a problem: a group or an export without workers, or behind, or a node that is silent.
import { html } from "./vendor/preact-htm.js";
import { call } from "./api.js";
import { number, State, usePolled } from "./parts.js";
import { line } from "./text.js";
import { clock, duration, parse } from "./time.js";

const EVERY_MS = 30_000;
/** An event needs less than this from a program to the store. */
const BEHIND_S = 10;

/** How to start a worker of our own groups; other groups are read by programs that we do not know. */
const startOf = (name) => (["sink", "log"].includes(name) ? ` Start one: eventbus worker ${name}.` : "");

/** {about, text} of each group of workers that does not keep up. */
export function groupTroubles({ groups = [] }) {
  const found = [];
  if (!groups.some(({ name }) => name === "sink"))
    found.push({
      about: "No sink worker is running",
      text: "New events are not stored and not shown here until one runs: eventbus worker sink.",
    });
  for (const { name, workers, lag, behindS, destroyed } of groups) {
    const waiting = lag ? `${number(lag)} events wait` : "Nothing waits yet";
    const shown = name === "sink" ? "; newer events are not shown here yet" : "";
    if (destroyed)
      found.push({ about: `Group ${line(name)} was destroyed`, text: "Restart its workers: they create it again." });
    else if (!workers.some(({ alive }) => alive))
      found.push({ about: `No ${line(name)} worker is running`, text: `${waiting}${shown}.${startOf(name)}` });
    else if (behindS >= BEHIND_S)
      found.push({ about: `Group ${line(name)} is ${duration(behindS)} behind`, text: `${waiting}${shown}.` });
  }
  return found;
}

/** {about, text} of each export that does not write. */
export function exportTroubles({ items = [] }) {
  return items.flatMap(({ name, pausedSinceMs, orphans, lag, error }) => {
    const waiting = lag ? `${number(lag)} events wait.` : "";
    if (pausedSinceMs)
      return [
        {
          about: `Export ${line(name)} is paused since ${clock(pausedSinceMs)}`,
          text: `${line(error)} ${waiting}`.trim(),
        },
      ];
    if (orphans.length) return [{ about: `No worker of export ${line(name)} is running`, text: waiting }];
    return [];
  });
}

/** The lease of a node: how long ago it was renewed, and whether that is too long. */
export function heartbeatOf(node, leases) {
  const lease = leases?.items?.find(({ metadata }) => metadata.name === node.metadata.name);
  if (!lease?.spec?.renewTime) return null;
  const ms = parse(lease.spec.renewTime);
  return { ms, silent: Date.now() - ms > (lease.spec.leaseDurationSeconds ?? 40) * 1000 };
}

/** The conditions of a node that are not as they should be: Ready is not True, or any other is not False. */
export function badConditions(node) {
  const conditions = node.status?.conditions ?? [];
  return conditions.filter(({ type, status }) => (type === "Ready" ? status !== "True" : status !== "False"));
}

/** {about, text} of all nodes that are silent or not well, and of the dead letter. */
export function fleetTroubles({ nodes, leases, dead }) {
  const bad = (nodes.items ?? []).filter((node) => badConditions(node).length || heartbeatOf(node, leases)?.silent);
  const found = [];
  if (bad.length)
    found.push({
      about: bad.length === 1 ? "1 node is not well" : `${number(bad.length)} nodes are not well`,
      text: `${bad
        .slice(0, 3)
        .map(({ metadata }) => line(metadata.name))
        .join(", ")}${bad.length > 3 ? ", …" : ""}`,
    });
  if (dead.items?.length)
    found.push({
      about: `${number(dead.items.length)}${dead.more ? "+" : ""} ${dead.items.length === 1 ? "entry is" : "entries are"} in the dead letter`,
      text: "Replay them when the cause is mended, or discard them.",
    });
  return found;
}

/** One line for each problem. */
export function TroubleList({ troubles }) {
  return html`<ul class="troubles">${troubles.map(
    ({ about, text }) => html`<li key=${about}><${State} good=${false}>${about}<//> <span>${text}</span></li>`,
  )}</ul>`;
}

/** Above the overview: the reasons why it may miss events. Shown to users who may see the health of the bus. */
export function Troubles({ session }) {
  const ask = async (signal) => {
    if (!session.may.seeHealth) return null;
    const [status, sinks] = await Promise.all(
      ["/eventbus/v1/status", "/eventbus/v1/sinks"].map((path) => call(path, {}, { signal })),
    );
    return [...groupTroubles(status), ...exportTroubles(sinks)];
  };
  const { found } = usePolled(ask, EVERY_MS, [session.user]);
  return found?.length > 0 && html`<${TroubleList} troubles=${found} />`;
}
