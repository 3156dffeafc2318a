// @ts-check
// Keeps one object's story as it is: asked for once, then told on by the page's stream, and judged anew by the server.
import { call } from "./api.js";
import { Live, watchOf } from "./live.js";

/** The least between two questions for the whole story, however many changes there are. */
const AGAIN_MS = 5000;
/** Without any change it is asked for anew after this: silence ends a loop as well. */
const SILENT_MS = 60_000;

/** Until it is closed. on.told(story): as `GET /eventbus/v1/why` answers.  on.state: of `Live`. */
export class Follower {
  #about;
  #before;
  #on;
  #live;
  #found = null;
  #family = new Set();
  #asked = 0;
  #timer = 0;
  #frame = 0;
  #abort = new AbortController();

  constructor(about, before, on) {
    [this.#about, this.#before, this.#on] = [about, before, on];
    const source = {
      list: (signal) => this.#ask(signal),
      watch: watchOf(about.namespace || "default", {}),
      ended: false,
    };
    this.#live = new Live(source, { changed: (frames) => this.#take(frames), state: on.state });
  }

  close() {
    this.#live.close();
    this.#abort.abort();
    clearTimeout(this.#timer);
    cancelAnimationFrame(this.#frame);
  }

  async #ask(signal) {
    this.#asked = Date.now();
    this.#found = await call("/eventbus/v1/why", { ...this.#about, before: this.#before }, { signal });
    this.#family = new Set([this.#found.object, ...this.#found.owned].map(nameOf));
    this.#tell();
    this.#askAfter(SILENT_MS);
    return this.#found.resourceVersion;
  }

  /** What is said of the object and its own is shown at once; what follows from it, when the server has said so. */
  #take(frames) {
    let concerns = false;
    for (const { type, object } of frames) {
      const about = object.involvedObject;
      const name = nameOf(about);
      if (!this.#family.has(name)) {
        // Perhaps a new one of its own: a Job's pod, called after it.
        concerns ||=
          about.name.startsWith(`${this.#about.name}-`) || this.#found.owners.some((owner) => nameOf(owner) === name);
        continue;
      }
      concerns = true;
      const list = name === nameOf(this.#found.object) ? "events" : "ofOwned";
      if (type !== "DELETED") this.#found = { ...this.#found, [list]: replaced(this.#found[list], object) };
    }
    if (!concerns) return;
    this.#tell();
    this.#askAfter(Math.max(0, this.#asked + AGAIN_MS - Date.now()));
  }

  #askAfter(ms) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      if (document.hidden)
        return document.addEventListener("visibilitychange", () => this.#askAfter(0), {
          once: true,
          signal: this.#abort.signal,
        });
      // Cut off: the stream says so, and asks for all anew.
      this.#ask(this.#abort.signal).catch(() => this.#abort.signal.aborted || this.#askAfter(AGAIN_MS));
    }, ms);
  }

  #tell() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#on.told(this.#found);
    });
  }
}

const nameOf = ({ kind, namespace, name }) => `${kind.toLowerCase()}/${namespace || "default"}/${name}`;

function replaced(events, event) {
  const others = events.filter(({ metadata }) => metadata.uid !== event.metadata.uid);
  return [...others, event];
}
