// @ts-check
// The frame of the page: session, address, keys, colors; the views are modules of their own.
import { html, render, useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact-htm.js";
import { objectAddress, objectOf, read, write } from "./address.js";
import { call } from "./api.js";
import { Health } from "./health.js";
import { hasShortcuts, Help } from "./help.js";
import { Notifications } from "./notifications.js";
import { Overview } from "./overview.js";
import { Go } from "./parts.js";
import { SignIn } from "./sign_in.js";
import { Story } from "./story.js";
import { line } from "./text.js";

const SCHEMES = ["auto", "dark", "light"];
const SCHEME_WORDS = { auto: "as the system", dark: "dark", light: "light" };

const TITLES = { health: "Health", notifications: "Notifications" };

/** Requested before anything is drawn, because all else waits for it. */
const firstSession = call("/eventbus/v1/session");
firstSession.catch(() => {}); // Page shows the error

function Page() {
  const [state, setState] = useState(read());
  const [session, setSession] = useState(null),
    [refused, setRefused] = useState("");
  const [help, setHelp] = useState(false);
  const [scheme, nextScheme, dark] = useScheme();
  const keys = useRef({});

  useEffect(() => {
    const back = () => setState(read());
    addEventListener("popstate", back);
    return () => removeEventListener("popstate", back);
  }, []);
  useEffect(() => {
    firstSession.then(setSession, (error) => setRefused(error.message));
  }, []);

  const go = (to) => {
    const address = typeof to === "string" ? to : objectAddress(to.about);
    history.pushState(null, "", address || location.pathname);
    setState(read());
    scrollTo(0, 0);
  };
  const change = (changes) => {
    const next = { ...read(), ...changes };
    history.pushState(null, "", write(next));
    setState(read());
  };
  useKeys(
    keys,
    {
      "?": () => setHelp(true),
      1: () => go(""),
      2: () => go(write({ view: "health" })),
      3: () => go(write({ view: "notifications" })),
      t: nextScheme,
    },
    help,
  );
  const about = objectOf(state);
  const title =
    state.view === "object" ? `${line(about.kind)}/${line(about.name)}` : (TITLES[state.view] ?? "Overview");
  useEffect(() => {
    document.title = `${title} · eventbus`;
  }, [title]);
  useFocusOnNewView(title);

  // A user who may list in some namespaces only starts in the first of them.
  const placed =
    session?.namespaces?.length && !state.namespace ? { ...state, namespace: session.namespaces[0] } : state;
  const rest = { state: placed, onChange: change, onGo: go, keys, session, scheme: `${scheme} ${dark}` };
  const signOut = async () => {
    await call("/eventbus/v1/session", {}, { method: "DELETE" });
    location.reload();
  };
  return html`<a class="skip" href="#main">Skip to the content</a>
    <header class="bar">
      <${Go} to="" onGo=${go} class="brand">eventbus<//>
      <nav aria-label="Views">
        <${Go} to="" onGo=${go} aria-current=${state.view === "overview" ? "page" : undefined}>Overview<//>
        <${Go} to=${write({ view: "health" })} onGo=${go} aria-current=${state.view === "health" ? "page" : undefined}>Health<//>
        <${Go} to=${write({ view: "notifications" })} onGo=${go} aria-current=${state.view === "notifications" ? "page" : undefined}>Notifications<//>
        ${state.view === "object" && html`<span class="here" aria-current="page">${title}</span>`}
      </nav>
      <span class="grow"></span>
      ${session && html`<span class="faint user" title=${`eventbus ${session.build}`}>${line(session.user)}${!session.may.replay && " (read-only)"}</span>`}
      ${session?.signedIn && html`<button type="button" onClick=${signOut}>Sign out</button>`}
      <button type="button" onClick=${nextScheme} aria-label=${`Colors: ${SCHEME_WORDS[scheme]}`} title=${`Colors: ${SCHEME_WORDS[scheme]} (t)`}><span aria-hidden="true">◐</span></button>
      <button type="button" onClick=${() => setHelp(true)} aria-label="Keys" title="Keys (?)"><span aria-hidden="true">?</span></button>
    </header>
    ${session ? view(rest) : refused ? html`<${SignIn} onIn=${setSession} why=${refused} />` : html`<main class="wait"><p>Loading …</p></main>`}
    ${help && html`<${Help} onClose=${() => setHelp(false)} />`}`;
}

function view(rest) {
  if (rest.state.view === "object") return html`<${Story} key=${rest.state.object} ...${rest} />`;
  if (rest.state.view === "health") return html`<${Health} ...${rest} />`;
  if (rest.state.view === "notifications") return html`<${Notifications} ...${rest} />`;
  return html`<${Overview} ...${rest} />`;
}

/** Move the focus to the new view, so that the keyboard and a screen reader go on there; not when the page is opened. */
function useFocusOnNewView(title) {
  const before = useRef(title);
  useEffect(() => {
    if (before.current !== title) document.getElementById("main")?.focus({ preventScroll: true });
    before.current = title;
  }, [title]);
}

/** The keys of the shown view, and those of all views; none while the user types, and single characters only if switched on. */
function useKeys(keys, always, closed) {
  const latest = useRef({ always, closed });
  // Effects run a frame later than this, and the first key after a change would be lost.
  useLayoutEffect(() => {
    latest.current = { always, closed };
  });
  useEffect(() => {
    const pressed = (event) => {
      if (latest.current.closed || event.ctrlKey || event.metaKey || event.altKey) return;
      const { target, key } = event;
      const typing = target.matches("input, select, textarea");
      if (typing && key === "Escape") return target.blur();
      if (typing || (key === "Enter" && target.matches("a, button, summary"))) return;
      if (key.length === 1 && !hasShortcuts()) return;
      const action = keys.current[key] ?? latest.current.always[key];
      if (!action) return;
      event.preventDefault();
      action();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

function useScheme() {
  const [scheme, set] = useState(localStorage.getItem("scheme") ?? "auto");
  const [dark, setDark] = useState(matchMedia("(prefers-color-scheme: dark)").matches);
  useEffect(() => {
    const system = matchMedia("(prefers-color-scheme: dark)");
    const changed = () => setDark(system.matches);
    system.addEventListener("change", changed);
    return () => system.removeEventListener("change", changed);
  }, []);
  useLayoutEffect(() => {
    document.documentElement.dataset.scheme = scheme;
  }, [scheme]);
  const next = () => {
    const chosen = SCHEMES[(SCHEMES.indexOf(scheme) + 1) % SCHEMES.length];
    localStorage.setItem("scheme", chosen);
    set(chosen);
  };
  // The canvas of the chart is drawn again when the scheme or the system changes.
  return [scheme, next, dark];
}

render(html`<${Page} />`, document.getElementById("page"));
