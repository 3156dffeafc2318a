// @ts-check
// The dialog that makes a silence, prefilled from an object or a group, and the rights to it.
import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { call } from "./api.js";

export const SILENCES = "/alertmanager/api/v2/silences";
const LABELS = ["type", "reason", "kind", "namespace", "name", "component", "host", "controller", "message"];
const OPERATORS = ["=", "!=", "=~", "!~"];
const DURATIONS = {
  "30m": "30 minutes",
  "1h": "1 hour",
  "4h": "4 hours",
  "8h": "8 hours",
  "1d": "1 day",
  "7d": "7 days",
};
const HOURS = { "30m": 0.5, "1h": 1, "4h": 4, "8h": 8, "1d": 24, "7d": 168 };

/** May the user silence and acknowledge alerts of a namespace? "" is all of them. */
export const maySilence = (session, namespace) =>
  session.may.silence || Boolean(namespace && session.silenceIn.includes(namespace));

/** The rows of the form that select what has these labels. */
export const rowsOf = (labels) =>
  Object.entries(labels)
    .filter(([name, value]) => value && name !== "alertname")
    .map(([name, value]) => ({ name, operator: "=", value }));

/** The operator and the fields of Alertmanager: isEqual false is a negation. */
export const operatorOf = ({ isRegex, isEqual }) => OPERATORS[2 * Number(isRegex) + Number(!isEqual)];

const NOTHING = { name: "", operator: "=", value: "" };

const matcherOf = ({ name, operator, value }) => ({
  name: name.trim(),
  value,
  isRegex: operator.endsWith("~"),
  isEqual: !operator.startsWith("!"),
});

/** *labels*: of the alerts to silence. *onDone* gets a sentence, *onClose* nothing. */
export function SilenceForm({ labels, onDone, onClose }) {
  const dialog = useRef(null),
    reason = useRef(null);
  const [rows, setRows] = useState(() => (Object.keys(labels).length ? rowsOf(labels) : [NOTHING])),
    [last, setLast] = useState("1h"),
    [comment, setComment] = useState("");
  const [refusal, setRefusal] = useState(""),
    [busy, setBusy] = useState(false);
  useEffect(() => {
    dialog.current.showModal();
    if (rows[0].value) reason.current.focus();
  }, []);
  const change = (at, changes) => setRows(rows.map((row, place) => (place === at ? { ...row, ...changes } : row)));
  const send = async (happened) => {
    happened.preventDefault();
    setBusy(true);
    const now = Date.now();
    const body = {
      matchers: rows.map(matcherOf),
      startsAt: new Date(now).toISOString(),
      endsAt: new Date(now + HOURS[last] * 3_600_000).toISOString(),
      createdBy: "",
      comment: comment.trim(),
    };
    try {
      await call(SILENCES, {}, { method: "POST", body });
      onDone(`Silenced for ${DURATIONS[last]}.`);
      dialog.current.close();
    } catch (error) {
      setRefusal(error.message);
      setBusy(false);
    }
  };
  return html`<dialog ref=${dialog} class="help silence-form" aria-labelledby="silence-title" onClose=${onClose}>
    <h2 id="silence-title">New silence</h2>
    <form onSubmit=${send}>
      <p class="faint">No message is sent about alerts that match all of these.</p>
      <datalist id="alert-labels">${LABELS.map((name) => html`<option key=${name} value=${name} />`)}</datalist>
      <ul class="matchers">${rows.map(
        (row, at) => html`<li key=${at}>
          <input type="text" list="alert-labels" required aria-label=${`Label ${at + 1}`} value=${row.name} onInput=${(event) => change(at, { name: event.target.value })} />
          <select aria-label=${`Operator ${at + 1}`} value=${row.operator} onChange=${(event) => change(at, { operator: event.target.value })}>${OPERATORS.map(
            (operator) => html`<option key=${operator} value=${operator}>${operator}</option>`,
          )}</select>
          <input type="text" aria-label=${`Value ${at + 1}`} value=${row.value} onInput=${(event) => change(at, { value: event.target.value })} />
          <button type="button" aria-label=${`Remove matcher ${at + 1}`} disabled=${rows.length === 1} onClick=${() => setRows(rows.filter((_, place) => place !== at))}>×</button></li>`,
      )}</ul>
      <p><button type="button" onClick=${() => setRows([...rows, NOTHING])}>Add a matcher</button></p>
      <p class="pair"><label for="silence-last">For</label>
        <select id="silence-last" value=${last} onChange=${(event) => setLast(event.target.value)}>${Object.entries(
          DURATIONS,
        ).map(([value, words]) => html`<option key=${value} value=${value}>${words}</option>`)}</select></p>
      <p class="pair"><label for="silence-comment">Comment</label>
        <input id="silence-comment" ref=${reason} type="text" required maxlength="500" placeholder="Why, for others" value=${comment} onInput=${(event) => setComment(event.target.value)} /></p>
      <p role="alert" class="bad">${refusal}</p>
      <p class="buttons"><button type="button" onClick=${() => dialog.current.close()}>Cancel</button>
        <button type="submit" disabled=${busy}>Silence</button></p>
    </form>
  </dialog>`;
}
