// @ts-check
// Says when what is shown is old: nobody stores what is recorded, or those who do are behind.
import { html } from "./vendor/preact-htm.js";
import { call } from "./api.js";
import { number, State, usePolled } from "./parts.js";
import { duration } from "./time.js";

const EVERY_MS = 30_000;
/** Behind by less is the way from a program to here. */
const LEAST_S = 10;

export function Behind({ session }) {
  const ask = (signal) => (session.may.seeHealth ? call("/eventbus/v1/status", {}, { signal }) : null);
  const { found } = usePolled(ask, EVERY_MS, [session.user]);
  const sink = found?.groups.find(({ name }) => name === "sink");
  if (!found || (sink?.workers.some(({ alive }) => alive) && sink.behindS < LEAST_S)) return null;
  const alive = sink?.workers.some((worker) => worker.alive);
  const waiting = sink?.lag ? `${number(sink.lag)} events wait` : "nothing waits yet";
  return html`<p class="behind">${
    alive
      ? html`<${State} good=${false}>${duration(sink.behindS)} behind<//> ${waiting} to be stored: what happened since is not shown here.`
      : html`<${State} good=${false}>no sink worker lives<//> ${waiting} to be stored: what happens is not shown here until one does (eventbus worker sink).`
  }</p>`;
}
