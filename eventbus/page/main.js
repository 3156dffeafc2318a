// @ts-check
// The page: who looks, at what, in which light; everything else is a view of its own.
import { html, render, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { objectAddress, objectOf, read, write } from "./address.js";
import { call } from "./api.js";
import { Health } from "./health.js";
import { Help } from "./help.js";
import { Overview } from "./overview.js";
import { Go } from "./parts.js";
import { SignIn } from "./sign_in.js";
import { Story } from "./story.js";
import { line } from "./text.js";

const SCHEMES = ["auto", "dark", "light"];
const SCHEME_WORDS = { auto: "as the system", dark: "dark", light: "light" };

/** Asked before anything is drawn: all else waits for it. */
const asked = call("/eventbus/v1/session");
asked.catch(() => {}); // told where it is drawn

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
    asked.then(setSession, (error) => setRefused(error.message));
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
    { "?": () => setHelp(true), 1: () => go(""), 2: () => go(write({ view: "health" })), t: nextScheme },
    help,
  );
  const about = objectOf(state);
  const title =
    state.view === "object"
      ? `${line(about.kind)}/${line(about.name)}`
      : state.view === "health"
        ? "Health"
        : "Overview";
  useEffect(() => {
    document.title = `${title} · eventbus`;
  }, [title]);

  // Who may list in some namespaces alone begins in the first of them.
  const placed =
    session?.namespaces?.length && !state.namespace ? { ...state, namespace: session.namespaces[0] } : state;
  const rest = { state: placed, onChange: change, onGo: go, keys, session, scheme: `${scheme} ${dark}` };
  const signOut = async () => {
    await call("/eventbus/v1/session", {}, { method: "DELETE" });
    location.reload();
  };
  return html`<a class="skip" href="#main">To the content</a>
    <header class="bar">
      <${Go} to="" onGo=${go} class="brand">eventbus<//>
      <nav aria-label="Views">
        <${Go} to="" onGo=${go} aria-current=${state.view === "overview" ? "page" : undefined}>Overview<//>
        <${Go} to=${write({ view: "health" })} onGo=${go} aria-current=${state.view === "health" ? "page" : undefined}>Health<//>
        ${state.view === "object" && html`<span class="here" aria-current="page">${title}</span>`}
      </nav>
      <span class="grow"></span>
      ${session && html`<span class="faint user" title=${`eventbus ${session.build}`}>${line(session.user)}${!session.may.replay && " (read-only)"}</span>`}
      ${session?.signedIn && html`<button type="button" onClick=${signOut}>Sign out</button>`}
      <button type="button" onClick=${nextScheme} aria-label=${`Colours: ${SCHEME_WORDS[scheme]}`} title=${`Colours: ${SCHEME_WORDS[scheme]} (t)`}><span aria-hidden="true">◐</span></button>
      <button type="button" onClick=${() => setHelp(true)} aria-label="Keys" title="Keys (?)"><span aria-hidden="true">?</span></button>
    </header>
    ${session ? view(rest) : refused ? html`<${SignIn} onIn=${setSession} why=${refused} />` : html`<main class="wait"><p>Asking for events …</p></main>`}
    ${help && html`<${Help} onClose=${() => setHelp(false)} />`}`;
}

function view(rest) {
  if (rest.state.view === "object") return html`<${Story} key=${rest.state.object} ...${rest} />`;
  if (rest.state.view === "health") return html`<${Health} ...${rest} />`;
  return html`<${Overview} ...${rest} />`;
}

/** The keys of the view that is shown, and those of all; not while something is typed. */
function useKeys(keys, always, closed) {
  const known = useRef(always),
    asleep = useRef(closed);
  known.current = always;
  // Not what the effect depends on: effects come a frame later, and a quick key would be lost.
  asleep.current = closed;
  useEffect(() => {
    const pressed = (happened) => {
      if (asleep.current || happened.ctrlKey || happened.metaKey || happened.altKey) return;
      const { target, key } = happened;
      const types = target.matches("input, select, textarea");
      if (types && key === "Escape") return target.blur();
      if (types || (key === "Enter" && target.matches("a, button, summary"))) return;
      const act = keys.current[key] ?? known.current[key];
      if (!act) return;
      happened.preventDefault();
      act();
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
  document.documentElement.dataset.scheme = scheme;
  const next = () => {
    const chosen = SCHEMES[(SCHEMES.indexOf(scheme) + 1) % SCHEMES.length];
    localStorage.setItem("scheme", chosen);
    set(chosen);
  };
  // What is drawn on a canvas is drawn anew when either is another.
  return [scheme, next, dark];
}

render(html`<${Page} />`, document.getElementById("page"));
