// @ts-check
// One list and one stream behind it: what is asked for, then all that changes, for as long as the page shows it.
import { Refused, watchLines } from "./api.js";

/** No byte for so long: the line is dead, though nobody has said so (sleep, a lost network). */
const SILENT_MS = 100_000;
const PAUSES_MS = [500, 1000, 2000, 5000, 10_000, 30_000];

/** The watch of the events of a namespace, or of all, as `Live` wants it. */
export function watchOf(namespace, selectors) {
  const path = namespace ? `/api/v1/namespaces/${encodeURIComponent(namespace)}/events` : "/api/v1/events";
  return { path, query: { watch: "1", allowWatchBookmarks: "true", ...selectors } };
}

/**
 * Follows a source until it is closed: {list, watch, ended}. list(signal): asks for all, tells it, and resolves to its
 * version, from which `watch` goes on; again when that is too old. ended: there is nothing more to come.
 *
 * on.changed(frames): [{type, object}], in order.
 * on.state({name, since, why}): listing, live, still (a period that has ended), cut.
 */
export class Live {
  #abort = new AbortController();
  #version = "";
  #heard = 0;
  #source;
  #on;

  constructor(source, on) {
    this.#source = source;
    this.#on = on;
    this.#run();
  }

  close() {
    this.#abort.abort();
  }

  async #run() {
    let failed = 0;
    const { signal } = this.#abort;
    while (!signal.aborted) {
      try {
        if (!this.#version) {
          this.#on.state({ name: "listing" });
          this.#version = await this.#source.list(signal);
        }
        if (this.#source.ended) return this.#on.state({ name: "still" });
        await this.#watch(signal, () => {
          failed = 0;
        });
        // Its end is no failure; of one that told nothing, the second in a row is.
        if (failed++) await sleep(pauseMs(failed), signal);
      } catch (error) {
        if (signal.aborted) return;
        failed++;
        if (error instanceof Refused && error.code === 410) {
          this.#version = "";
          if (failed === 1) continue; // too old for once: all is asked for anew
        } else {
          const hopeless = error instanceof Refused && [400, 401, 403].includes(error.code);
          this.#on.state({ name: "cut", why: error.message, code: error.code, hopeless });
          if (hopeless) return;
        }
        await sleep(pauseMs(failed, error), signal);
      }
    }
  }

  async #watch(signal, told) {
    const { path, query } = this.#source.watch;
    const line = new AbortController();
    const end = () => line.abort();
    signal.addEventListener("abort", end);
    this.#heard = Date.now();
    const guard = setInterval(() => Date.now() - this.#heard > SILENT_MS && end(), 5000);
    try {
      const frames = watchLines(path, { ...query, resourceVersion: this.#version }, line.signal, () => {
        this.#on.state({ name: "live" });
      });
      for await (const batch of frames) {
        this.#heard = Date.now();
        this.#take(batch);
        told();
      }
    } catch (error) {
      if (signal.aborted || !line.signal.aborted) throw error;
    } finally {
      end(); // an error of the stream leaves its response open
      clearInterval(guard);
      signal.removeEventListener("abort", end);
    }
  }

  #take(frames) {
    const changes = [];
    for (const { type, object } of frames) {
      if (type === "ERROR") throw new Refused(object.code, object.message);
      this.#version = object.metadata.resourceVersion;
      if (type !== "BOOKMARK") changes.push({ type, object });
    }
    if (changes.length) this.#on.changed(changes);
  }
}

/** How long to wait after so many failures in a row; longer where the server says so. */
export function pauseMs(failed, error) {
  return Math.max(PAUSES_MS[Math.min(failed, PAUSES_MS.length) - 1], (error?.retryAfter ?? 0) * 1000);
}

function sleep(ms, signal) {
  return new Promise((done) => {
    const over = new AbortController();
    const end = () => (clearTimeout(timer), over.abort(), done());
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end, { signal: over.signal });
    window.addEventListener("online", end, { signal: over.signal });
  });
}
