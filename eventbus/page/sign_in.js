// @ts-check
// The door, where the worker knows people by their tokens: asked for once, kept by the browser where no script reads it.
import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { call } from "./api.js";

export function SignIn({ onIn, why }) {
  const [said, say] = useState(""),
    [busy, setBusy] = useState(false);
  const field = useRef(null);
  useEffect(() => field.current.focus(), []);
  const send = async (happened) => {
    happened.preventDefault();
    setBusy(true);
    try {
      onIn(await call("/eventbus/v1/session", {}, { method: "POST", body: { token: field.current.value } }));
    } catch (error) {
      say(error.message);
      setBusy(false);
      field.current.select();
    }
  };
  return html`<main id="main" class="sign-in"><h1>Sign in</h1>
    <p>This bus knows its people by tokens. Yours is asked for once; it stays in a cookie of this browser until you sign out or close it.</p>
    <form onSubmit=${send}>
      <input type="text" autocomplete="username" value="token" hidden readonly />
      <label for="token">Token</label>
      <input id="token" ref=${field} type="password" autocomplete="current-password" required aria-describedby="said" />
      <button type="submit" disabled=${busy}>${busy ? "…" : "Sign in"}</button>
    </form>
    <p id="said" role="alert" class="bad">${said}</p>
    <p class="faint">${why && why !== "Unauthorized" ? why : "A worker without users serves the user who runs it, on the same machine, without this."}</p></main>`;
}
