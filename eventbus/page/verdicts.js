// @ts-check
// What fails, since when, how often, and does it still: judged by the server, of the objects that have Warnings here.
import { useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { call } from "./api.js";
import { pauseMs } from "./live.js";
import { parse } from "./time.js";

/** Objects judged: those whose Warnings were seen last. */
export const MOST = 200;
/** How often it is looked whether there is something new to be judged, and how often all is judged anew. */
const LOOK_MS = 1000,
  ANEW_MS = 10_000;

/** A verdict as the API answers it, with its times as numbers. */
export function read(verdict) {
  const place = verdict.object.namespace || "default";
  return {
    ...verdict,
    key: keyOf(place, verdict.object),
    place,
    since: parse(verdict.since),
    last: parse(verdict.last),
    on: verdict.still === "goes-on",
  };
}

/** Of one object: its kind in any case. */
const keyOf = (place, { kind, name }) => `${place}/${(kind ?? "").toLowerCase()}/${name}`;

/** The uids of the Warnings that go on. */
export const goingOn = (verdicts) => new Set(verdicts.flatMap(({ goesOn }) => goesOn));

/** The verdicts on all objects with a Warning among *rows*; null: they are being asked for. Those that go on come first. */
export function useVerdicts(rows) {
  const [found, set] = useState(null);
  const wanted = useRef(null),
    look = useRef(null);
  wanted.current = objectsOf(rows);
  useEffect(() => {
    const abort = new AbortController();
    let judged = "",
      at = 0,
      busy = false,
      failed = 0,
      rests = 0;
    look.current = async () => {
      const { objects, signature } = wanted.current;
      if (busy || document.hidden || Date.now() < rests || (signature === judged && Date.now() - at < ANEW_MS)) return;
      [judged, at, busy] = [signature, Date.now(), true];
      try {
        const { items } = objects.length
          ? await call("/eventbus/v1/verdicts", {}, { method: "POST", body: { objects }, signal: abort.signal })
          : { items: [] };
        failed = 0;
        set(items.map(read).sort((a, b) => b.on - a.on || b.last - a.last || b.total - a.total));
      } catch (error) {
        judged = ""; // cut off, and the list says so: asked again
        rests = Date.now() + pauseMs(++failed, error);
      }
      busy = false;
    };
    look.current();
    const timer = setInterval(() => look.current(), LOOK_MS);
    return () => (clearInterval(timer), abort.abort());
  }, []);
  const some = wanted.current.objects.length > 0;
  useEffect(() => {
    look.current();
  }, [some]);
  const shown = new Set(wanted.current.keys);
  return found && (found.length || !some) ? found.filter(({ key }) => shown.has(key)) : some ? null : [];
}

function objectsOf(rows) {
  const found = new Map();
  for (const { warning, namespace, about, last, count } of rows) {
    if (!warning) continue;
    const key = keyOf(namespace || "default", about),
      before = found.get(key);
    if (!before) found.set(key, { about, last, count });
    else [before.last, before.count] = [Math.max(before.last, last), before.count + count];
  }
  const newest = [...found].sort((a, b) => b[1].last - a[1].last).slice(0, MOST);
  const objects = newest.map(([, { about }]) => ({
    kind: about.kind,
    namespace: about.namespace ?? "",
    name: about.name,
  }));
  return {
    objects,
    keys: newest.map(([key]) => key),
    signature: newest.map(([key, { last, count }]) => `${key} ${last} ${count}`).join("\n"),
  };
}
